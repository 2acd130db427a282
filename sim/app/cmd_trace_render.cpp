// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "gui/core/alignment.hpp"
#include "gui/core/charts.hpp"
#include "gui/core/draw.hpp"
#include "gui/core/explorer.hpp"
#include "gui/core/open_file.hpp"
#include "sim/app/commands.hpp"
#include "sim/app/report.hpp"
#include "sim/app/scenario_flags.hpp"
#include "sim/base/yaml.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMaxSide = 16'384;

class Render final : public Command {
 public:
  std::string_view name() const override { return "trace render"; }
  std::string_view summary() const override { return "draw a timeline as PNG or SVG, without a display"; }
  std::string_view arguments() const override { return "FILE PICTURE"; }
  Arity arity() const override { return {2, 2}; }

  std::vector<Flag> flags() override {
    return {
        {"--size", "WIDTHxHEIGHT", "pixels of the picture; default 1920x1080",
         [this](const std::string& v) { size(v); }},
        {"--from", "TIME", "where the picture begins, such as '1.5 ms'; default: the start of the run",
         [this](const std::string& v) { from_ = time(v); }},
        {"--to", "TIME", "where it ends; default: the end of the run", [this](const std::string& v) { to_ = time(v); }},
        {"--colour-by", "WHAT", "class, rank, layer, microbatch, phase, error or slack; default class",
         [this](const std::string& v) { colour_by_ = word("--colour-by", v, gui::ColourBy{}); }},
        {"--compare", "OTHER", "lay a second timeline beside it", [this](const std::string& v) { other_ = v; }},
        {"--mode", "HOW", "lanes, overlay, blink or difference; default lanes",
         [this](const std::string& v) { mode_ = word("--mode", v, gui::CompareMode{}); }},
        {"--error", "OF", "duration, time, start, gap or overlap; default duration",
         [this](const std::string& v) { channel_ = word("--error", v, gui::ErrorChannel{}); }},
        {"--align", "BY", "step, op, clock or manual; default step",
         [this](const std::string& v) { alignment_ = word("--align", v, gui::Alignment{}); }},
        {"--group-by", "AXIS", "node or an axis of the mesh", [this](const std::string& v) { group_by_ = v; }},
        {"--memory", "RANK", "draw instead what a rank keeps in its memory, and where",
         [this](const std::string& v) { memory_of_ = static_cast<std::uint32_t>(integer_option("--memory", v, 0)); }},
        {"--tier", "TIER", "of --memory: device, host, pinned, disk or peer; default device",
         [this](const std::string& v) { tier_ = tier_of(v); }},
        {"--fold", "", "one line a rank", [this](const std::string&) { fold_ = true; }},
        {"--dark", "", "on a dark background", [this](const std::string&) { theme_ = gui::ThemeName::Dark; }},
        {"--scale", "FACTOR", "of texts and rows, 1 to 2; default 1",
         [this](const std::string& v) { scale_ = factor(v); }}};
  }

  int run(AppContext& context, const std::vector<std::string>& arguments) override {
    const std::string extension = std::filesystem::path{arguments[1]}.extension();
    if (extension != ".png" && extension != ".svg")
      throw UserError{fmt::format("cannot tell the format of the picture {} by its name", in_quotes(arguments[1])),
                      "names of pictures end with .png or .svg"};
    gui::Explorer explorer;
    explorer.open(gui::open_document(arguments[0]));
    explorer.find_insight();
    if (!other_.empty()) {
      explorer.compare(
          gui::compare_documents(explorer.document(), gui::open_document(other_), {.alignment = alignment_}));
      explorer.fit();
    }
    set_view(explorer);
    gui::Font font;
    const gui::Painter paint = painter(explorer);
    write_file_atomically(arguments[1], extension == ".svg"
                                            ? gui::render_svg(paint, width_, height_, font)
                                            : gui::write_png(gui::render_image(paint, width_, height_, font)));
    if (context.json)
      context.console.out(
          nlohmann::json{
              {"schema_version", kSchemaVersion}, {"picture", arguments[1]}, {"width", width_}, {"height", height_}}
              .dump(2) +
          "\n");
    else
      context.console.out(fmt::format("written to {}\n", arguments[1]));
    return exit_code::kOk;
  }

 private:
  void set_view(gui::Explorer& explorer) const {
    gui::View& view = explorer.view();
    view.theme = theme_;
    view.scale = scale_;
    view.colour_by = colour_by_;
    view.compare_mode = mode_;
    view.error_channel = channel_;
    if (from_) view.time.begin = *from_;
    if (to_) view.time.end = *to_;
    if (view.time.length() <= 0)
      throw UserError{"the picture would end before it begins", "give --to a later time than --from"};
    const std::vector<std::string> groupings = gui::groupings_of(explorer.document());
    if (!group_by_.empty() && std::find(groupings.begin(), groupings.end(), group_by_) == groupings.end())
      throw unknown_name("grouping", group_by_, groupings);
    view.group_by = group_by_;
    for (std::uint32_t o = 0; fold_ && o < explorer.document().owners().size(); ++o)
      view.folded.insert(gui::Row{.kind = gui::RowKind::Owner, .index = o}.key());
    explorer.refresh();
  }

  gui::Painter painter(const gui::Explorer& explorer) const {
    if (!memory_of_) return [&explorer](gui::Canvas& c) { gui::draw_timeline(c, explorer.scene()); };
    const auto known = gui::memories_of(explorer.document());
    if (std::find(known.begin(), known.end(), std::pair{*memory_of_, tier_}) == known.end())
      throw UserError{fmt::format("this timeline has no {} memory of rank {}", orrery::name_of(tier_), *memory_of_),
                      known.empty() ? "it tells nothing of memory"
                                    : fmt::format("such as rank {}, --tier {}", known.front().first,
                                                  orrery::name_of(known.front().second))};
    return [&explorer, profile = gui::memory_profile(explorer.document(), *memory_of_, tier_)](gui::Canvas& c) {
      gui::draw_memory(c, profile, explorer.view());
    };
  }

  static Tier tier_of(const std::string& v) {
    std::vector<std::string> known;
    for (int t = 0; t < kNumTiers; ++t) {
      if (orrery::name_of(static_cast<Tier>(t)) == v) return static_cast<Tier>(t);
      known.emplace_back(orrery::name_of(static_cast<Tier>(t)));
    }
    throw unknown_name("value of --tier", v, known);
  }

  void size(const std::string& v) {
    const std::size_t x = v.find('x');
    if (x == std::string::npos)
      throw UserError{fmt::format("option --size is {}", in_quotes(v)), "give pixels such as 1920x1080"};
    const auto side = [&](const std::string& text) {
      return static_cast<int>(std::min(kMaxSide, integer_option("--size", text, 64)));
    };
    width_ = side(v.substr(0, x));
    height_ = side(v.substr(x + 1));
  }

  static std::int64_t time(const std::string& v) { return static_cast<std::int64_t>(parse<Seconds>(v).base() * 1e12); }

  static double factor(const std::string& v) {
    const std::optional<double> f = parse_number(v);
    if (!f || *f < 1 || *f > 2)
      throw UserError{fmt::format("option --scale is {}", in_quotes(v)), "give a number between 1 and 2"};
    return *f;
  }

  template <class E>
  static E word(std::string_view flag, const std::string& v, E) {
    std::vector<std::string> known;
    for (const EnumName<E>& e : gui::enum_names(E{})) {
      if (e.name == v) return e.value;
      known.emplace_back(e.name);
    }
    throw unknown_name(fmt::format("value of {}", flag), v, known);
  }

  int width_ = 1920, height_ = 1080;
  std::optional<std::int64_t> from_, to_;
  gui::ColourBy colour_by_ = gui::ColourBy::Class;
  gui::ThemeName theme_ = gui::ThemeName::Light;
  std::string group_by_;
  double scale_ = 1;
  std::string other_;
  gui::CompareMode mode_ = gui::CompareMode::Lanes;
  gui::ErrorChannel channel_ = gui::ErrorChannel::Duration;
  gui::Alignment alignment_ = gui::Alignment::Step;
  bool fold_ = false;
  std::optional<std::uint32_t> memory_of_;
  Tier tier_ = Tier::Device;
};

}  // namespace

std::unique_ptr<Command> make_trace_render() { return std::make_unique<Render>(); }

}  // namespace orrery
