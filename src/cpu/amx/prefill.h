// Class P of bf16 on AMX tiles, as the driver calls it.
#pragma once

#include "cpu/amx/kernel.h"
#include "cpu/tiles.h"

namespace tilewise::cpu {

// Whether this CPU, system and process can. Asks the kernel once per process.
bool amx_available();

// Attends a block of class P, from all of its keys, and stores its rows. q and the cache are bf16;
// `scratch` holds plan::lay_out_amx() bytes for block.count rows, 64-byte aligned, any contents.
void amx_prefill(const Block& block, const BlockRows& rows, KeyTile* tile, char* scratch,
                 const amx::Kernel& kernel = amx::kHardwareKernel);

}  // namespace tilewise::cpu
