// The vector targets that we compile, before Highway's headers are read. SSSE3 goes with the
// baseline (machines that have it and not SSE4 are gone); AVX3_DL differs from AVX3 in nothing that
// float arithmetic uses; scalable vectors (SVE, RVV) cannot lie in arrays, so ARM uses NEON.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
