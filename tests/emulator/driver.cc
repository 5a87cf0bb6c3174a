// A libcuda.so.1 whose device memory is the host's: what tools/common/device.cc asks of the driver.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* count) { return *count = 1, 0; }
int cuDeviceGetName(char* name, int size, int) {
  std::strncpy(name, "emulator", static_cast<std::size_t>(size));
  return 0;
}
int cuDeviceGetAttribute(int* value, int, int) { return *value = 1, 0; }
int cuDeviceTotalMem_v2(std::size_t* bytes, int) { return *bytes = std::size_t{2} << 30, 0; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuGetErrorName(int, const char** name) { return *name = "emulated error", 0; }
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = context, 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuMemGetInfo_v2(std::size_t* available, std::size_t* total) {
  *available = *total = std::size_t{2} << 30;
  return 0;
}
// Nothing is device memory already: 1 is CUDA_ERROR_INVALID_VALUE.
int cuPointerGetAttribute(void*, int, std::uint64_t) { return 1; }
int cuMemAlloc_v2(std::uint64_t* address, std::size_t bytes) {
  *address = reinterpret_cast<std::uint64_t>(std::aligned_alloc(512, (bytes + 511) / 512 * 512));
  return *address != 0 ? 0 : 2;
}
int cuMemFree_v2(std::uint64_t address) {
  std::free(reinterpret_cast<void*>(address));
  return 0;
}
int cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t bytes, void*) {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
int cuMemcpyDtoHAsync_v2(void* to, std::uint64_t from, std::size_t bytes, void*) {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return 0;
}
int cuMemsetD8Async(std::uint64_t at, unsigned char value, std::size_t bytes, void*) {
  std::memset(reinterpret_cast<void*>(at), value, bytes);
  return 0;
}
int cuStreamCreate(void** stream, unsigned) { return *stream = stream, 0; }
int cuStreamDestroy_v2(void*) { return 0; }
int cuStreamSynchronize(void*) { return 0; }
// No graphs: 801 is CUDA_ERROR_NOT_SUPPORTED.
int cuStreamBeginCapture_v2(void*, int) { return 801; }
int cuStreamEndCapture(void*, void**) { return 801; }
int cuGraphInstantiateWithFlags(void**, void*, unsigned long long) { return 801; }
int cuGraphLaunch(void*, void*) { return 801; }
int cuGraphDestroy(void*) { return 801; }
int cuGraphExecDestroy(void*) { return 801; }

}  // extern "C"
