// SPDX-License-Identifier: Apache-2.0
#include "gui/core/font.hpp"

#include <fmt/format.h>
#include <ft2build.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <unordered_map>
#include FT_FREETYPE_H

#include "sim/base/error.hpp"

namespace orrery::gui {
namespace {

struct DoneLibrary {
  void operator()(FT_Library l) const { FT_Done_FreeType(l); }
};
struct DoneFace {
  void operator()(FT_Face f) const { FT_Done_Face(f); }
};

/// The next code point of UTF-8; bytes that are none become U+FFFD.
char32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) -> unsigned { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(at++);
  if (first < 0x80) return first;
  const int more = first >= 0xf0 && first < 0xf8 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : -1;
  if (more < 0 || first >= 0xf8 || at + static_cast<std::size_t>(more) > text.size()) return 0xfffd;
  char32_t point = first & (0x3fu >> more);
  for (int i = 0; i < more; ++i, ++at) {
    if ((byte(at) & 0xc0) != 0x80) return 0xfffd;
    point = point << 6 | (byte(at) & 0x3f);
  }
  return point;
}

struct Glyph {
  int left = 0, top = 0, width = 0, height = 0;
  std::int64_t advance = 0;  // 26.6
  std::vector<std::uint8_t> coverage;
};

struct Kept {
  Label label;
  std::uint64_t used = 0;
};

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
};

/// One size of one face.
struct Sized {
  std::unordered_map<char32_t, Glyph> glyphs;
  std::unordered_map<std::string, Kept, Hash, std::equal_to<>> labels;
};

std::string font_file(Weight weight) {
  const char* folder = std::getenv("ORRERY_FONTS");
  return fmt::format("{}/{}", folder != nullptr ? folder : ORRERY_FONTS_DIR,
                     weight == Weight::Bold ? "DejaVuSans-Bold.ttf" : "DejaVuSans.ttf");
}

}  // namespace

struct Font::Implementation {
  std::unique_ptr<FT_LibraryRec_, DoneLibrary> library;
  std::array<std::unique_ptr<FT_FaceRec_, DoneFace>, 2> faces;
  std::unordered_map<int, Sized> sizes;  // by pixels and weight
  std::uint64_t uses = 0;
  std::size_t kept = 0;

  Implementation() {
    FT_Library l = nullptr;
    if (FT_Init_FreeType(&l) != 0) throw MissingError{"FreeType cannot be initialised"};
    library.reset(l);
    for (const Weight w : {Weight::Regular, Weight::Bold}) {
      FT_Face f = nullptr;
      const std::string file = font_file(w);
      if (FT_New_Face(l, file.c_str(), 0, &f) != 0)
        throw MissingError{fmt::format(
            "the font {} is missing: `apt-get install fonts-dejavu-core`, or set ORRERY_FONTS to the folder it is in",
            file)};
      faces[static_cast<std::size_t>(w)].reset(f);
    }
  }

  FT_Face face(FontStyle style) {
    FT_Face f = faces[static_cast<std::size_t>(style.weight)].get();
    FT_Set_Pixel_Sizes(f, 0, static_cast<FT_UInt>(std::clamp(style.pixels, 4, 200)));
    return f;
  }
  Sized& sized(FontStyle style) { return sizes[style.pixels * 2 + static_cast<int>(style.weight)]; }

  const Glyph& glyph(char32_t point, FontStyle style, Sized& s) {
    const auto [it, is_new] = s.glyphs.try_emplace(point);
    Glyph& g = it->second;
    if (!is_new) return g;
    FT_Face f = face(style);
    if (FT_Load_Char(f, point, FT_LOAD_RENDER | FT_LOAD_NO_HINTING) != 0) return g;
    const FT_GlyphSlot slot = f->glyph;
    g = {slot->bitmap_left,
         slot->bitmap_top,
         static_cast<int>(slot->bitmap.width),
         static_cast<int>(slot->bitmap.rows),
         slot->advance.x,
         {}};
    for (int y = 0; y < g.height; ++y) {
      const unsigned char* row = slot->bitmap.buffer + y * slot->bitmap.pitch;
      g.coverage.insert(g.coverage.end(), row, row + g.width);
    }
    return g;
  }

  Label draw(std::string_view text, FontStyle style, Sized& s) {
    const FT_Face f = face(style);
    Label label;
    label.ascent = static_cast<int>((f->size->metrics.ascender + 63) >> 6);
    label.height = label.ascent + static_cast<int>((63 - f->size->metrics.descender) >> 6);
    std::int64_t pen = 0;
    std::vector<std::pair<int, const Glyph*>> placed;
    for (std::size_t at = 0; at < text.size();) {
      const Glyph& g = glyph(next_code_point(text, at), style, s);
      placed.emplace_back(static_cast<int>((pen + 32) >> 6), &g);
      pen += g.advance;
      label.ends.push_back(pen);
    }
    label.width = static_cast<int>((pen + 63) >> 6) + 1;
    label.coverage.assign(static_cast<std::size_t>(label.width) * static_cast<std::size_t>(label.height), 0);
    for (const auto& [x, g] : placed) stamp(*g, x, label);
    return label;
  }

  static void stamp(const Glyph& g, int x, Label& label) {
    for (int row = 0; row < g.height; ++row) {
      const int y = label.ascent - g.top + row;
      if (y < 0 || y >= label.height) continue;
      for (int column = 0; column < g.width; ++column) {
        const int to = x + g.left + column;
        if (to < 0 || to >= label.width) continue;
        std::uint8_t& c = label.coverage[static_cast<std::size_t>(y * label.width + to)];
        c = std::max(c, g.coverage[static_cast<std::size_t>(row * g.width + column)]);
      }
    }
  }

  /// Forgets the half that was used longest ago.
  void forget() {
    const std::uint64_t limit = uses - kMaxLabels / 2;
    for (auto& [key, s] : sizes) kept -= std::erase_if(s.labels, [&](const auto& e) { return e.second.used < limit; });
  }
};

Font::Font() : impl_{std::make_unique<Implementation>()} {}
Font::~Font() = default;

const Label& Font::label(std::string_view text, FontStyle style) {
  Sized& s = impl_->sized(style);
  ++impl_->uses;
  auto it = s.labels.find(text);
  if (it == s.labels.end()) {
    if (impl_->kept >= kMaxLabels) impl_->forget();
    it = s.labels.emplace(std::string{text}, Kept{impl_->draw(text, style, s), 0}).first;
    ++impl_->kept;
  }
  it->second.used = impl_->uses;
  return it->second.label;
}

int Font::width(std::string_view text, FontStyle style) { return label(text, style).width; }
int Font::ascent(FontStyle style) { return label("x", style).ascent; }
int Font::height(FontStyle style) { return label("x", style).height; }

std::size_t Label::letters_before(const Label& more, int pixels) const {
  constexpr std::size_t kLeast = 3;
  const std::int64_t room = std::int64_t{pixels} * 64 - more.ends.back();
  const auto letters = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), room) - ends.begin());
  return letters < kLeast ? 0 : letters;
}

std::string Font::elided(std::string_view text, FontStyle style, int width) {
  const Label& whole = label(text, style);
  if (whole.width <= width) return std::string{text};
  const std::size_t letters = whole.letters_before(label("…", style), width);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < letters; ++i) next_code_point(text, bytes);
  return letters == 0 ? std::string{} : std::string{text.substr(0, bytes)} + "…";
}

}  // namespace orrery::gui
