// Cuts text into the pieces inside which byte pairs may merge: every digit (any number character)
// alone, and the rest by the pattern that GPT-2 introduced: contractions, an optional space before
// a run of letters or of other characters, and white space up to the last one before a word.
#pragma once

#include <string_view>
#include <vector>

namespace tilewise::generate {

// The pieces in order; together they are `text`. Bytes that are not UTF-8 count as "other"
// characters.
std::vector<std::string_view> pretokenize(std::string_view text);

}  // namespace tilewise::generate
