// Byte-pair merging: joins the neighbours whose pair stands first in the list of merges, again and
// again.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tilewise::generate {

class MergeTable {
 public:
  // The next merge of the list: `left` and `right` become `joined`.
  void add(std::int32_t left, std::int32_t right, std::int32_t joined);

  // Merges `tokens` until no neighbours have an entry. Among equal pairs the leftmost goes first.
  void apply(std::vector<std::int32_t>* tokens) const;

 private:
  struct Merge {
    std::int32_t rank, joined;
  };
  const Merge* find(std::int32_t left, std::int32_t right) const;

  std::unordered_map<std::uint64_t, Merge> merges_;
  std::int32_t next_rank_ = 0;
};

}  // namespace tilewise::generate
