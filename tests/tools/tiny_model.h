// A small random Llama in a temporary folder, and the logits that float64 arithmetic gives for it:
// slow and obvious, without the library and without the runner's code.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tilewise::generate {

struct TinyShape {
  std::int64_t hidden = 40, feed_forward = 56, layers = 2;
  std::int64_t q_heads = 4, kv_heads = 2, head_dim = 16, vocab = 95;
};

class TinyModel {
 public:
  explicit TinyModel(bool tied_embedding = true);
  ~TinyModel();
  TinyModel(const TinyModel&) = delete;
  TinyModel& operator=(const TinyModel&) = delete;

  const std::string& folder() const { return folder_; }
  const TinyShape& shape() const { return shape_; }
  // Logits after the last of `ids`.
  std::vector<double> logits(const std::vector<std::int32_t>& ids) const;
  // `count` tokens, each the likeliest after those before it.
  std::vector<std::int32_t> greedy(std::vector<std::int32_t> ids, std::int64_t count) const;

 private:
  using Rows = std::vector<std::vector<double>>;

  void add_tensor(const std::string& name, std::int64_t rows, std::int64_t columns);
  void write_files(bool tied_embedding) const;
  Rows multiply(const Rows& x, const std::string& name) const;
  Rows norm(const Rows& x, const std::string& name) const;
  Rows attention(const Rows& x, const std::string& layer) const;
  Rows feed_forward(const Rows& x, const std::string& layer) const;
  void rotate(Rows* x) const;

  struct Values {
    std::int64_t rows, columns;  // columns 0 = a vector
    std::vector<std::uint16_t> bits;
  };
  TinyShape shape_;
  std::string folder_;
  std::map<std::string, Values> tensors_;
};

}  // namespace tilewise::generate
