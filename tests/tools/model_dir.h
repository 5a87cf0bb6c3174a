// Where tests find the demo's model, and what they do without it: skip, or fail where
// TILEWISE_REQUIRE_MODEL=1 says that it must be there.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tilewise::generate {

inline std::string model_dir() {
  return std::string(TILEWISE_SOURCE_DIR) + "/models/smollm2-135m-instruct";
}

inline bool has_model() { return std::filesystem::exists(model_dir() + "/model.safetensors"); }

inline bool requires_model() {
  const char* value = std::getenv("TILEWISE_REQUIRE_MODEL");
  return value != nullptr && std::string(value) == "1";
}

}  // namespace tilewise::generate
