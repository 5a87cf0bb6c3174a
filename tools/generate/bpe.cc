// See bpe.h. A heap of candidate pairs over a linked list: n log n also for a piece of a megabyte.
#include "generate/bpe.h"

#include <cstddef>
#include <queue>
#include <tuple>

namespace tilewise::generate {
namespace {

constexpr std::int32_t kGone = -1;

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

// A pair that could merge when it was entered; stale if one of its tokens has changed since.
struct Candidate {
  std::int32_t rank;
  std::size_t position;
  std::int32_t left, right, joined;

  bool operator>(const Candidate& other) const {
    return std::tie(rank, position) > std::tie(other.rank, other.position);
  }
};

struct Node {
  std::int32_t token;
  std::size_t previous, next;  // count = none
};

}  // namespace

void MergeTable::add(std::int32_t left, std::int32_t right, std::int32_t joined) {
  merges_.emplace(pair_key(left, right), Merge{next_rank_++, joined});
}

const MergeTable::Merge* MergeTable::find(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void MergeTable::apply(std::vector<std::int32_t>* tokens) const {
  const std::size_t count = tokens->size();
  if (count < 2) return;
  std::vector<Node> nodes(count);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto offer = [&](std::size_t i) {
    if (i >= count || nodes[i].next >= count) return;
    const std::int32_t left = nodes[i].token;
    const std::int32_t right = nodes[nodes[i].next].token;
    if (const Merge* merge = find(left, right)) {
      heap.push({merge->rank, i, left, right, merge->joined});
    }
  };
  for (std::size_t i = 0; i < count; ++i) nodes[i] = {(*tokens)[i], i == 0 ? count : i - 1, i + 1};
  for (std::size_t i = 0; i < count; ++i) offer(i);
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    Node& left = nodes[best.position];
    if (left.token != best.left || left.next >= count) continue;
    Node& right = nodes[left.next];
    if (right.token != best.right) continue;
    left.token = best.joined;
    right.token = kGone;
    left.next = right.next;
    if (left.next < count) nodes[left.next].previous = best.position;
    offer(left.previous);
    offer(best.position);
  }
  tokens->clear();
  for (const Node& node : nodes) {
    if (node.token != kGone) tokens->push_back(node.token);
  }
}

}  // namespace tilewise::generate
