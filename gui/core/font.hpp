// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::gui {

enum class Weight : std::uint8_t { Regular, Bold };

struct FontStyle {
  int pixels = 12;  // size of the em square
  Weight weight = Weight::Regular;
  bool operator==(const FontStyle&) const = default;
};

/// A line of text as coverage, 0 to 255, in rows. The base line is `ascent` below its top.
struct Label {
  int width = 0, height = 0, ascent = 0;
  std::vector<std::uint8_t> coverage;
  std::vector<std::int64_t> ends;  // of each letter, in 1/64 of a pixel

  /// How many letters fit into `pixels` with `more` behind them; 0 when those are too few to mean anything.
  std::size_t letters_before(const Label& more, int pixels) const;
  /// Pixels from the left edge to the end of a letter, counted from 1.
  int end_of(std::size_t letter) const { return static_cast<int>((ends[letter - 1] + 32) >> 6); }
};

/// Draws text with FreeType and DejaVu Sans, without hinting, so that a picture is the same on each machine with that
/// font. Drawn lines are kept: up to kMaxLabels of them, then those not used lately are forgotten.
class Font {
 public:
  /// Throws MissingError when the font files are not where ORRERY_FONTS or the build says.
  Font();
  ~Font();
  Font(const Font&) = delete;
  Font& operator=(const Font&) = delete;

  /// Valid until kMaxLabels / 2 other labels were asked for.
  const Label& label(std::string_view text, FontStyle style);
  int width(std::string_view text, FontStyle style);
  int ascent(FontStyle style);
  int height(FontStyle style);
  /// The text, or its beginning with "…" so that it fits; empty when not even three letters do.
  std::string elided(std::string_view text, FontStyle style, int width);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> impl_;
};

constexpr std::size_t kMaxLabels = 8192;

}  // namespace orrery::gui
