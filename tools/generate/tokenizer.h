// Byte-level BPE tokenizer as tokenizer.json describes it: special tokens are split off first, then
// the text is cut (pretokenizer.h) and the bytes of each piece are merged (bpe.h).
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "generate/bpe.h"

namespace tilewise::generate {

class Tokenizer {
 public:
  // Throws InputError if `model` is not a byte-level BPE tokenizer of the kind above.
  explicit Tokenizer(const nlohmann::json& model);

  // `text` may hold any bytes. A byte that the vocabulary lacks is left out.
  std::vector<std::int32_t> encode(std::string_view text) const;

  // Bytes of one token; empty for a number outside the vocabulary.
  std::string_view token_bytes(std::int32_t id) const;
  // Text of tokens, special ones included, with U+FFFD for what is not UTF-8.
  std::string decode(const std::vector<std::int32_t>& ids) const;

  std::int32_t vocab_size() const { return static_cast<std::int32_t>(bytes_.size()); }

 private:
  struct Special {
    std::string text;
    std::int32_t id;
  };
  using Vocabulary = std::unordered_map<std::string, std::int32_t>;

  std::int32_t add_token(const nlohmann::json& id, const std::string& text, std::string bytes);
  Vocabulary read_vocabulary(const nlohmann::json& vocab);
  void read_merges(const nlohmann::json& merges, const Vocabulary& vocab);
  void read_specials(const nlohmann::json& added);
  const Special* special_at(std::string_view text) const;
  void encode_plain(std::string_view text, std::vector<std::int32_t>* ids) const;

  std::vector<std::string> bytes_;             // by token
  std::array<std::int32_t, 256> byte_tokens_;  // -1 = the vocabulary lacks this byte
  std::vector<Special> specials_;              // longest first
  std::array<bool, 256> begins_special_ = {};  // by first byte
  MergeTable merges_;
};

// Turns a stream of tokens into text that never ends inside a character.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // What can be shown now that `id` has come.
  std::string push(std::int32_t id);
  // What is left at the end: a cut character becomes U+FFFD.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;
};

}  // namespace tilewise::generate
