// The SVG plot: one bar a row, as long as the share of the machine's limit that the call reached.
#include <algorithm>
#include <cmath>
#include <ostream>

#include "bench/report.h"
#include "common/table.h"

namespace tilewise::bench {
namespace {

constexpr int kWidth = 920;
constexpr int kLabelWidth = 210;
constexpr int kValueWidth = 190;
constexpr int kBarsWidth = kWidth - kLabelWidth - kValueWidth;
constexpr int kTop = 104;
constexpr int kRowHeight = 22;
constexpr int kBarHeight = 14;
constexpr int kGroupGap = 34;
constexpr int kBottom = 52;

const char* colour_of(LimitKind kind) {
  switch (kind) {
    case LimitKind::kFma:
      return "#2f6db5";
    case LimitKind::kAmx:
      return "#7a4fb3";
    case LimitKind::kRead:
      return "#2b8a5b";
    case LimitKind::kCopy:
      break;
  }
  return "#b5762f";
}

const char* meaning_of(LimitKind kind) {
  switch (kind) {
    case LimitKind::kFma:
      return "of float32 multiply-add peak";
    case LimitKind::kAmx:
      return "of bf16 tile peak";
    case LimitKind::kRead:
      return "of read bandwidth, same buffer";
    case LimitKind::kCopy:
      break;
  }
  return "of copy bandwidth, same buffers";
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else {
      out += c;
    }
  }
  return out;
}

void text_at(std::ostream& out, int x, int y, const char* style, const std::string& text) {
  out << "<text x=\"" << x << "\" y=\"" << y << "\" " << style << ">" << escaped(text)
      << "</text>\n";
}

struct Rect {
  int x, y, width, height;
};

void box(std::ostream& out, const Rect& rect, const char* colour, const char* part) {
  out << "<rect class=\"" << part << "\" x=\"" << rect.x << "\" y=\"" << rect.y << "\" width=\""
      << rect.width << "\" height=\"" << rect.height << "\" fill=\"" << colour << "\"/>\n";
}

// "prefill/fp32/d64/causal" belongs to group "prefill" and is labelled "fp32 d64 causal".
std::string group_of(const std::string& name) { return name.substr(0, name.find('/')); }

std::string label_of(const std::string& name) {
  std::string label = name.substr(std::min(name.size(), name.find('/') + 1));
  std::replace(label.begin(), label.end(), '/', ' ');
  return label;
}

bool starts_group(const std::vector<Result>& results, std::size_t i) {
  return i == 0 || group_of(results[i].row.name) != group_of(results[i - 1].row.name);
}

// 100 % of the limit, or more if a row exceeds it, in steps of 20 %.
double axis_end(const std::vector<Result>& results) {
  double end = 1.0;
  for (const Result& result : results)
    end = std::max(end, std::ceil(result.share * 5.0 - 1e-9) / 5.0);
  return end;
}

int height_of(const std::vector<Result>& results) {
  int height = kTop + kBottom;
  for (std::size_t i = 0; i < results.size(); ++i)
    height += kRowHeight + (starts_group(results, i) ? kGroupGap : 0);
  return height;
}

void draw_axis(std::ostream& out, double end, int bottom) {
  for (int percent = 0; percent <= static_cast<int>(std::lround(100.0 * end)); percent += 20) {
    const int x = kLabelWidth + static_cast<int>(std::lround(kBarsWidth * percent / (100.0 * end)));
    box(out, {x, kTop, 1, bottom - kTop}, percent == 100 ? "#888888" : "#e2e2e2", "grid");
    text_at(out, x, bottom + 16, "class=\"small\" text-anchor=\"middle\"",
            std::to_string(percent) + " %");
  }
}

void draw_legend(std::ostream& out, const std::vector<Result>& results) {
  int x = 24;
  for (const LimitKind kind :
       {LimitKind::kFma, LimitKind::kAmx, LimitKind::kRead, LimitKind::kCopy}) {
    const bool used = std::any_of(results.begin(), results.end(),
                                  [kind](const Result& r) { return r.limit_kind == kind; });
    if (!used) continue;
    const std::string meaning = meaning_of(kind);
    box(out, {x, 74, 12, 12}, colour_of(kind), "legend");
    text_at(out, x + 18, 84, "class=\"small\"", meaning);
    x += 44 + static_cast<int>(meaning.size()) * 6;
  }
}

void draw_rows(std::ostream& out, const std::vector<Result>& results, double end) {
  int y = kTop;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Result& result = results[i];
    if (starts_group(results, i)) {
      y += kGroupGap;
      text_at(out, 24, y - 8, "class=\"group\"", group_of(result.row.name));
    }
    const int length = static_cast<int>(std::lround(kBarsWidth * result.share / end));
    box(out, {kLabelWidth, y + (kRowHeight - kBarHeight) / 2, length, kBarHeight},
        colour_of(result.limit_kind), "bar");
    text_at(out, kLabelWidth - 10, y + 15, "text-anchor=\"end\"", label_of(result.row.name));
    const bool arithmetic =
        result.limit_kind == LimitKind::kFma || result.limit_kind == LimitKind::kAmx;
    const int value_x = kWidth - kValueWidth;
    text_at(out, value_x + 56, y + 15, "text-anchor=\"end\"",
            tools::fixed(100.0 * result.share, 0) + " %");
    text_at(out, value_x + 124, y + 15, "text-anchor=\"end\"",
            tools::fixed(arithmetic ? result.gflops : result.gb_s, arithmetic ? 0 : 1));
    text_at(out, value_x + 130, y + 15, "class=\"small\"", limit_unit(result.limit_kind));
    y += kRowHeight;
  }
}

}  // namespace

void write_svg(const Report& report, std::ostream& out) {
  const int height = height_of(report.results);
  const double end = axis_end(report.results);
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << kWidth << "\" height=\"" << height
      << "\" viewBox=\"0 0 " << kWidth << ' ' << height << "\">\n"
      << "<style>text { font: 13px 'DejaVu Sans', Verdana, sans-serif; fill: #222222; } .title { "
         "font-size: 18px; "
         "font-weight: bold; } .group { font-weight: bold; } .small { font-size: 11px; fill: "
         "#555555; }</style>\n";
  box(out, {0, 0, kWidth, height}, "#ffffff", "paper");
  text_at(out, 24, 34, "class=\"title\"",
          "Tilewise " + report.version + ": share of the machine's limit");
  text_at(out, 24, 56, "class=\"small\"",
          report.machine.cpu + ", " + std::to_string(report.threads) + " threads, " + report.isa +
              ", median of " + std::to_string(report.effort.samples) +
              "; limits measured in the same run");
  draw_legend(out, report.results);
  draw_axis(out, end, height - kBottom);
  draw_rows(out, report.results, end);
  out << "</svg>\n";
}

}  // namespace tilewise::bench
