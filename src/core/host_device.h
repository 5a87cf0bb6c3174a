// TW_DEVICE marks functions that host and device code share. Plain C++ everywhere else.
#pragma once

#if defined(__CUDACC__)
#define TW_DEVICE __host__ __device__
#else
#define TW_DEVICE
#endif
