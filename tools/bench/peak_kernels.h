// The loops that find a machine's limits: multiply-adds that never leave the registers, and a plain
// read of memory, each in the widest vectors that the processor has. One thread's work.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tilewise::bench {

// Runs `rounds` rounds of independent float32 multiply-adds; returns the floating-point operations
// done.
double run_fma(std::int64_t rounds);

// Name of the vector target that run_fma and run_read use.
const char* peak_target();

// Reads every byte of [data, data + bytes) once, as `streams` parts side by side. The exclusive or
// of the words goes to a sink that the compiler must honour.
void run_read(const std::byte* data, std::size_t bytes, std::size_t streams);

// AMX tiles, bf16: operations done by `rounds` rounds of independent tile products. Callable only
// if amx_usable().
double run_amx(std::int64_t rounds);

// Whether this processor has bf16 tiles and the kernel lets this process use them.
bool amx_usable();

}  // namespace tilewise::bench
