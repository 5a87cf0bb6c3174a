// What conformance tests share: running a problem through every variant of this machine,
// expectations on the answers, and the bytes of one request of a batch.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "verify/runner.h"

namespace tilewise::tests {

using verify::Answer;
using verify::at;
using verify::Case;
using verify::Choice;
using verify::Index;
using verify::Problem;

// A case of `type` everywhere with the shape of most public reports.
Case make_case(tw_dtype type, Index q_heads, Index kv_heads, Index head_dim,
               std::vector<verify::Request> requests);

// Every element type, for loops.
const std::vector<tw_dtype>& all_types();

// Every variant of the backend in use right under the tolerance rule, and twins equal in bytes.
void expect_right(const Problem& p);

// Variants beside the oracle that the backend in use has and this problem may use.
std::vector<int> usable_variants(const Problem& p);

// Of these the ones that differ from another only in who computes a chunk, with that other one.
std::vector<std::pair<int, int>> usable_twins(const Problem& p);

// Calls `look` with the answer of the oracle and of every usable variant; each must have succeeded
// and written nothing but its rows.
void for_each_answer(const Problem& p, const std::function<void(const Answer&)>& look);

// Element d of (request, row, head) and its LSE.
float output(const Problem& p, const Answer& answer, Index r, Index i, Index h, Index d);
float lse(const Problem& p, const Answer& answer, Index r, Index i, Index h);

// Every variant within a + a * |reference| (a scaled by the largest |V|), and LSE within 1e-3 +
// 2e-6 * |reference|: for inputs so large that the house rule, which knows logits of ordinary size,
// does not hold.
void expect_within(const Problem& p, double a);

// Turns a case into a census; outputs in float32, so that shares can be told apart for thousands of
// keys.
void make_census(Case& c);

// Checks a census answer (q = 0, V one-hot by key): LSE is exactly the log of how many keys each
// row sees, and outputs say which. `count(request, row, head)`, if given, replaces the number that
// the problem's own rule gives.
void expect_census(const Problem& p, const Answer& answer,
                   const std::function<Index(Index, Index, Index)>& count = nullptr);

// A row that saw nothing: exactly +0 and -inf.
void expect_empty_row(const Problem& p, const Answer& answer, Index r, Index i);

// The bytes of rows [first, last) of the whole call: outputs, then LSE.
std::vector<std::uint8_t> row_bytes(const Problem& p, const Answer& answer, Index first,
                                    Index last);

// The bytes of request r's outputs, then of its LSE.
std::vector<std::uint8_t> request_bytes(const Problem& p, const Answer& answer, Index r);

}  // namespace tilewise::tests
