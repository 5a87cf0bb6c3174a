// See tokenizer.h.
#include "generate/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "generate/error.h"
#include "generate/pretokenizer.h"
#include "generate/utf8.h"

namespace tilewise::generate {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxVocabulary = 1 << 24;

[[noreturn]] void fail(const std::string& what) { throw InputError("tokenizer.json: " + what); }

// Byte-level vocabularies spell every byte as one visible character: printable Latin-1 as itself,
// the 68 others as U+0100 and up, in order.
std::array<std::string, 256> byte_spellings() {
  std::array<std::string, 256> spellings;
  char32_t next = 0x100;
  for (std::size_t byte = 0; byte < spellings.size(); ++byte) {
    const bool visible = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    append_utf8(visible ? static_cast<char32_t>(byte) : next++, &spellings[byte]);
  }
  return spellings;
}

std::unordered_map<char32_t, char> bytes_by_character() {
  std::unordered_map<char32_t, char> bytes;
  const auto spellings = byte_spellings();
  for (std::size_t byte = 0; byte < spellings.size(); ++byte) {
    bytes.emplace(first_utf8_char(spellings[byte]).code_point, static_cast<char>(byte));
  }
  return bytes;
}

// The bytes that a vocabulary entry stands for. An entry that is no byte-level spelling means
// itself.
std::string unspell(std::string_view entry, const std::unordered_map<char32_t, char>& bytes) {
  std::string out;
  for (std::string_view rest = entry; !rest.empty();) {
    const Utf8Char c = first_utf8_char(rest);
    const auto byte = bytes.find(c.code_point);
    if (c.state != Utf8State::kValid || byte == bytes.end()) return std::string(entry);
    out.push_back(byte->second);
    rest.remove_prefix(c.length);
  }
  return out;
}

const json& member(const json& object, const char* key, json::value_t type) {
  if (!object.is_object() || !object.contains(key) || object[key].type() != type) {
    fail(std::string("lacks ") + key);
  }
  return object[key];
}

// A merge is ["a", "b"] or, in older files, "a b".
std::pair<std::string, std::string> merge_parts(const json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos) return {text.substr(0, space), text.substr(space + 1)};
  }
  fail("a merge is neither a pair nor two words: " + merge.dump().substr(0, 60));
}

// True if pre-tokenization is the one that pretokenizer.h does.
bool is_digits_and_byte_level(const json& pre) {
  if (!pre.is_object() || pre.value("type", "") != "Sequence") return false;
  const json& steps = member(pre, "pretokenizers", json::value_t::array);
  return steps.size() == 2 && steps[0].value("type", "") == "Digits" &&
         steps[0].value("individual_digits", false) && steps[1].value("type", "") == "ByteLevel" &&
         !steps[1].value("add_prefix_space", true) && steps[1].value("use_regex", true);
}

}  // namespace

Tokenizer::Tokenizer(const json& model) {
  try {
    const json& bpe = member(model, "model", json::value_t::object);
    if (bpe.value("type", "") != "BPE") fail("model.type is not BPE");
    if (!is_digits_and_byte_level(member(model, "pre_tokenizer", json::value_t::object))) {
      fail("pre_tokenizer is not Digits (individual), then ByteLevel without prefix space");
    }
    if (!model.value("normalizer", json()).is_null()) fail("a normalizer is not supported");
    const Vocabulary vocab = read_vocabulary(member(bpe, "vocab", json::value_t::object));
    read_merges(member(bpe, "merges", json::value_t::array), vocab);
    read_specials(model.value("added_tokens", json::array()));
  } catch (const json::exception& error) {
    fail(error.what());
  }
}

std::int32_t Tokenizer::add_token(const json& id, const std::string& text, std::string bytes) {
  if (!id.is_number_integer() || id < 0 || id >= kMaxVocabulary)
    fail("bad number for token " + text);
  const auto index = id.get<std::size_t>();
  if (index >= bytes_.size()) bytes_.resize(index + 1);
  bytes_[index] = std::move(bytes);
  return static_cast<std::int32_t>(index);
}

Tokenizer::Vocabulary Tokenizer::read_vocabulary(const json& vocab) {
  const auto bytes = bytes_by_character();
  Vocabulary ids;
  for (const auto& [text, id] : vocab.items()) {
    ids.emplace(text, add_token(id, text, unspell(text, bytes)));
  }
  const auto spellings = byte_spellings();
  for (std::size_t byte = 0; byte < spellings.size(); ++byte) {
    const auto found = ids.find(spellings[byte]);
    byte_tokens_[byte] = found == ids.end() ? -1 : found->second;
  }
  return ids;
}

void Tokenizer::read_merges(const json& merges, const Vocabulary& vocab) {
  const auto id_of = [&](const std::string& text) {
    const auto found = vocab.find(text);
    if (found == vocab.end()) fail("a merge names an unknown token " + text);
    return found->second;
  };
  for (const json& merge : merges) {
    const auto [left, right] = merge_parts(merge);
    merges_.add(id_of(left), id_of(right), id_of(left + right));
  }
}

void Tokenizer::read_specials(const json& added) {
  for (const json& entry : added) {
    const std::string text = entry.at("content");
    if (text.empty()) fail("an added token is empty");
    specials_.push_back({text, add_token(entry.at("id"), text, text)});
    begins_special_[static_cast<unsigned char>(text[0])] = true;
  }
  std::stable_sort(specials_.begin(), specials_.end(), [](const Special& a, const Special& b) {
    return a.text.size() > b.text.size();
  });
}

const Tokenizer::Special* Tokenizer::special_at(std::string_view text) const {
  if (!begins_special_[static_cast<unsigned char>(text[0])]) return nullptr;
  for (const Special& special : specials_) {
    if (text.substr(0, special.text.size()) == special.text) return &special;
  }
  return nullptr;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  std::size_t plain = 0;  // start of text that no special token has claimed
  for (std::size_t i = 0; i < text.size();) {
    if (const Special* special = special_at(text.substr(i))) {
      encode_plain(text.substr(plain, i - plain), &ids);
      ids.push_back(special->id);
      i += special->text.size();
      plain = i;
    } else {
      ++i;
    }
  }
  encode_plain(text.substr(plain), &ids);
  return ids;
}

void Tokenizer::encode_plain(std::string_view text, std::vector<std::int32_t>* ids) const {
  std::vector<std::int32_t> tokens;
  for (const std::string_view piece : pretokenize(text)) {
    tokens.clear();
    for (const char c : piece) {
      const std::int32_t token = byte_tokens_[static_cast<unsigned char>(c)];
      if (token >= 0) tokens.push_back(token);
    }
    merges_.apply(&tokens);
    ids->insert(ids->end(), tokens.begin(), tokens.end());
  }
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return bytes_[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& ids) const {
  std::string bytes;
  for (const std::int32_t id : ids) bytes += token_bytes(id);
  return to_valid_utf8(bytes);
}

std::string StreamDecoder::push(std::int32_t id) {
  pending_ += tokenizer_.token_bytes(id);
  // Only the last three bytes can belong to a character that is not whole yet.
  std::size_t whole = 0;
  while (whole < pending_.size()) {
    const Utf8Char c = first_utf8_char(std::string_view(pending_).substr(whole));
    if (c.state == Utf8State::kIncomplete) break;
    whole += c.length;
  }
  std::string out = to_valid_utf8(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out = to_valid_utf8(pending_);
  pending_.clear();
  return out;
}

}  // namespace tilewise::generate
