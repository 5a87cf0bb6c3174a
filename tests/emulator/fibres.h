// Runs CUDA kernels on the host, so that their logic is tested where there is no GPU: the threads
// of a block are fibres of one operating system thread, and blocks run one after another. Barriers,
// shuffles and ballots are real; clusters are not there. What it cannot show: races between fibres
// that no barrier stops, memory ordering, and the rounding of the device's own exponentials.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

namespace tilewise::emulator {

struct Index {
  unsigned x;
};

// Counts fibres in until all that have not ended are there.
struct Barrier {
  unsigned count = 0, generation = 0, alive = 0;
};

struct Block;

struct Fibre {
  ucontext_t context;
  jmp_buf jump;
  Index index;
  bool started = false, done = false;
  std::vector<char> stack;
  Block* block;
};

struct Block {
  jmp_buf back;
  std::vector<Fibre> fibres;
  std::vector<char> shared_memory;
  char* shared;  // aligned to 128 bytes
  Barrier all, warps[32];
  std::uint64_t exchange[32][32];  // [warp][lane]
  int vote;
  std::function<void()> body;
};

extern thread_local Fibre* current;
extern thread_local Index block_index, block_size;

// Runs `body` once for every thread of every block, with `shared_bytes` of dynamic shared memory.
void run(std::int64_t blocks, int threads, int shared_bytes, const std::function<void()>& body);

void wait(Barrier& barrier);

inline Barrier& own_warp() { return current->block->warps[current->index.x / 32]; }
inline unsigned own_lane() { return current->index.x % 32; }

// What each lane of the warp brought.
inline void gather(std::uint64_t mine, std::uint64_t (&all)[32]) {
  std::uint64_t(&places)[32] = current->block->exchange[current->index.x / 32];
  places[own_lane()] = mine;
  wait(own_warp());
  std::memcpy(all, places, sizeof all);
  wait(own_warp());
}

template <class T>
T shuffle(T mine, unsigned from) {
  std::uint64_t bits = 0, all[32];
  std::memcpy(&bits, &mine, sizeof mine);
  gather(bits, all);
  T there;
  std::memcpy(&there, &all[from % 32], sizeof there);
  return there;
}

}  // namespace tilewise::emulator
