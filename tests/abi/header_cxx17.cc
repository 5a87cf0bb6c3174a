// The C++ header alone, first and in two units' worth of ways: it must compile by itself under
// -std=c++17 -pedantic-errors and link with nothing but the shared library.
#include <tilewise/tilewise.hpp>
// Second, on purpose: both headers may come in any order and more than once.
#include <tilewise/tilewise.h>

#include <cstdint>
#include <type_traits>

// C layouts: a struct that stopped being one could not be passed by other languages.
static_assert(std::is_standard_layout_v<tw_attention_args>);
static_assert(std::is_trivially_copyable_v<tw_attention_args>);
static_assert(std::is_standard_layout_v<tw_kv_cache>);
static_assert(std::is_trivially_copyable_v<tw_qk_prep_args>);
static_assert(sizeof(tw_status) == 4);

int main() {
  const std::uint32_t version = TW_VERSION_MAJOR << 16 | TW_VERSION_MINOR << 8 | TW_VERSION_PATCH;
  return tw_version() == version ? 0 : 1;
}
