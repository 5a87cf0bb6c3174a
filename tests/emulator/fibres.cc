// Fibres of a block, switched by setjmp and longjmp once they have started.
#include "fibres.h"

#include <cstdio>
#include <cstdlib>

namespace tilewise::emulator {
namespace {

constexpr std::size_t kStackBytes = std::size_t{1} << 17;
constexpr int kCanaryBytes = 64;
constexpr char kCanary = 0x5A;

void leave(Barrier& barrier) {
  --barrier.alive;
  if (barrier.alive > 0 && barrier.count == barrier.alive) {
    barrier.count = 0;
    ++barrier.generation;
  }
}

void enter_body() {
  Fibre& fibre = *current;
  fibre.block->body();
  fibre.done = true;
  leave(fibre.block->all);
  leave(fibre.block->warps[fibre.index.x / 32]);
  _longjmp(fibre.block->back, 1);
}

void yield() {
  Fibre& fibre = *current;
  if (_setjmp(fibre.jump) == 0) _longjmp(fibre.block->back, 1);
}

__attribute__((noinline)) void resume(Block& block, Fibre& fibre) {
  if (_setjmp(block.back) != 0) return;
  if (fibre.started) _longjmp(fibre.jump, 1);
  fibre.started = true;
  setcontext(&fibre.context);
}

void prepare(Block& block, unsigned threads) {
  block.fibres.resize(threads);
  block.all = {0, 0, threads};
  for (Barrier& warp : block.warps) warp = {0, 0, 32};
  for (unsigned t = 0; t < threads; ++t) {
    Fibre& fibre = block.fibres[t];
    if (fibre.stack.empty()) fibre.stack.resize(kStackBytes);
    fibre.index = {t};
    fibre.done = fibre.started = false;
    fibre.block = &block;
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack.data();
    fibre.context.uc_stack.ss_size = fibre.stack.size();
    fibre.context.uc_link = nullptr;
    makecontext(&fibre.context, enter_body, 0);
  }
}

void run_block(Block& block) {
  for (bool any = true; any;) {
    any = false;
    for (Fibre& fibre : block.fibres) {
      if (fibre.done) continue;
      any = true;
      current = &fibre;
      resume(block, fibre);
    }
  }
}

}  // namespace

thread_local Fibre* current;
thread_local Index block_index, block_size;

void wait(Barrier& barrier) {
  if (++barrier.count == barrier.alive) {
    barrier.count = 0;
    ++barrier.generation;
    return;
  }
  const unsigned generation = barrier.generation;
  while (barrier.generation == generation) yield();
}

// Shared memory starts as NaN, and what is written past its end ends the program.
void run(std::int64_t blocks, int threads, int shared_bytes, const std::function<void()>& body) {
  static thread_local Block block;
  block.body = body;
  block_size.x = static_cast<unsigned>(threads);
  const auto bytes = static_cast<std::size_t>(shared_bytes);
  block.shared_memory.resize(bytes + kCanaryBytes + 128);
  const auto address = reinterpret_cast<std::uintptr_t>(block.shared_memory.data());
  block.shared = block.shared_memory.data() + (128 - address % 128) % 128;
  for (std::int64_t i = 0; i < blocks; ++i) {
    block_index.x = static_cast<unsigned>(i);
    std::memset(block.shared, 0xFF, bytes);
    std::memset(block.shared + bytes, kCanary, kCanaryBytes);
    prepare(block, static_cast<unsigned>(threads));
    run_block(block);
    for (int n = 0; n < kCanaryBytes; ++n) {
      if (block.shared[shared_bytes + n] == kCanary) continue;
      std::fputs("emulator: a kernel wrote past its shared memory\n", stderr);
      std::abort();
    }
  }
}

}  // namespace tilewise::emulator
