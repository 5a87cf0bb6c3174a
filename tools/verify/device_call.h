// A call of tw_attention, made of host memory, on a CUDA device: every array copied there, every
// pointer translated, everything copied back.
#pragma once

#include "verify/mirror.h"

namespace tilewise::verify {

class DeviceCall {
 public:
  // `host` must have passed the library's checks (tw_attention_workspace), since the arrays' sizes
  // follow from it. Arrays that lie in one of `blocks` keep their guards; those that already are in
  // device memory stay there. Runs on the stream of the calling thread.
  DeviceCall(const tw_attention_args& host, const std::vector<const Block*>& blocks);
  DeviceCall(const DeviceCall&) = delete;
  DeviceCall& operator=(const DeviceCall&) = delete;

  const tw_attention_args& args() const { return args_; }
  Mirror& mirror() { return mirror_; }
  // Waits and copies back; the text says what went wrong, empty if nothing.
  std::string finish() { return mirror_.bring_back(); }

 private:
  void add_rows();
  void add_cache();
  void add_mask();
  void translate();

  Mirror mirror_;
  tw_attention_args args_;
  tw_target target_{};
  tw_kv_cache kv_{};
  tw_new_kv append_{};
  tw_mask mask_{};
};

// The arguments' target made that of device 0 and of this thread's stream.
void use_device(tw_target* target);

}  // namespace tilewise::verify
