// The few functions of the driver API that copies, streams and graphs need.
#include "common/device.h"

#include <dlfcn.h>

#include <fstream>
#include <type_traits>
#include <utility>

namespace tilewise::tools {
namespace {

// Signatures as in cuda.h, with plain types; CUresult 0 is success.
struct Driver {
  int (*init)(unsigned);
  int (*device_count)(int*);
  int (*device_name)(char*, int, int);
  int (*device_attribute)(int*, int, int);
  int (*device_memory)(std::size_t*, int);
  int (*driver_version)(int*);
  int (*error_name)(int, const char**);
  int (*retain_context)(void**, int);
  int (*set_context)(void*);
  int (*free_memory)(std::size_t*, std::size_t*);
  int (*pointer_attribute)(void*, int, std::uint64_t);
  int (*stream_create)(void**, unsigned);
  int (*stream_destroy)(void*);
  int (*stream_synchronize)(void*);
  int (*allocate)(std::uint64_t*, std::size_t);
  int (*release)(std::uint64_t);
  int (*upload)(std::uint64_t, const void*, std::size_t, void*);
  int (*download)(void*, std::uint64_t, std::size_t, void*);
  int (*fill)(std::uint64_t, unsigned char, std::size_t, void*);
  int (*begin_capture)(void*, int);
  int (*end_capture)(void*, void**);
  int (*instantiate)(void**, void*, unsigned long long);
  int (*launch_graph)(void*, void*);
  int (*destroy_graph)(void*);
  int (*destroy_executable)(void*);
  void* context = nullptr;
  bool usable = false;

  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    int devices = 0;
    usable = library != nullptr && find_basics(library) && find_memory(library) &&
             find_graphs(library) && init(0) == 0 && device_count(&devices) == 0 && devices > 0 &&
             retain_context(&context, 0) == 0;
  }

 private:
  template <class Function>
  static bool find(void* library, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    return *function != nullptr;
  }
  bool find_basics(void* in) {
    return find(in, "cuInit", &init) && find(in, "cuDeviceGetCount", &device_count) &&
           find(in, "cuDeviceGetName", &device_name) &&
           find(in, "cuDeviceGetAttribute", &device_attribute) &&
           find(in, "cuDeviceTotalMem_v2", &device_memory) &&
           find(in, "cuDriverGetVersion", &driver_version) &&
           find(in, "cuGetErrorName", &error_name) &&
           find(in, "cuDevicePrimaryCtxRetain", &retain_context) &&
           find(in, "cuCtxSetCurrent", &set_context);
  }
  bool find_memory(void* in) {
    return find(in, "cuMemGetInfo_v2", &free_memory) &&
           find(in, "cuPointerGetAttribute", &pointer_attribute) &&
           find(in, "cuMemAlloc_v2", &allocate) && find(in, "cuMemFree_v2", &release) &&
           find(in, "cuMemcpyHtoDAsync_v2", &upload) &&
           find(in, "cuMemcpyDtoHAsync_v2", &download) && find(in, "cuMemsetD8Async", &fill);
  }
  bool find_graphs(void* in) {
    return find(in, "cuStreamCreate", &stream_create) &&
           find(in, "cuStreamDestroy_v2", &stream_destroy) &&
           find(in, "cuStreamSynchronize", &stream_synchronize) &&
           find(in, "cuStreamBeginCapture_v2", &begin_capture) &&
           find(in, "cuStreamEndCapture", &end_capture) &&
           find(in, "cuGraphInstantiateWithFlags", &instantiate) &&
           find(in, "cuGraphLaunch", &launch_graph) && find(in, "cuGraphDestroy", &destroy_graph) &&
           find(in, "cuGraphExecDestroy", &destroy_executable);
  }
};

// With the context current in this thread.
const Driver& driver() {
  static const Driver loaded;
  if (loaded.usable) loaded.set_context(loaded.context);
  return loaded;
}

std::string error_text(int error) {
  const char* name = nullptr;
  if (error == 0) return "";
  if (driver().error_name(error, &name) != 0) name = "unknown";
  return "the device failed with error " + std::to_string(error) + " (" + name + ")";
}

}  // namespace

bool device_usable() { return driver().usable; }

DeviceFacts device_facts() {
  DeviceFacts facts;
  const Driver& d = driver();
  if (!d.usable) return facts;
  char name[256] = {};
  d.device_name(name, sizeof name, 0);
  facts.name = name;
  const auto attribute = [&d](int number) {
    int value = 0;
    d.device_attribute(&value, number, 0);
    return value;
  };
  // CU_DEVICE_ATTRIBUTE_...
  constexpr int kSmCount = 16, kL2 = 38, kMajor = 75, kMinor = 76, kSharedOfSm = 81,
                kSharedOfBlock = 97;
  facts.compute = 10 * attribute(kMajor) + attribute(kMinor);
  facts.sm_count = attribute(kSmCount);
  facts.l2_bytes = attribute(kL2);
  facts.shared_bytes_of_sm = attribute(kSharedOfSm);
  facts.shared_bytes_of_block = attribute(kSharedOfBlock);
  std::size_t bytes = 0;
  d.device_memory(&bytes, 0);
  facts.memory_bytes = static_cast<std::int64_t>(bytes);
  d.driver_version(&facts.driver);
  return facts;
}

std::string driver_release() {
  std::string release;
  std::ifstream("/sys/module/nvidia/version") >> release;
  return release;
}

std::size_t free_device_bytes() {
  std::size_t free = 0, total = 0;
  return device_usable() && driver().free_memory(&free, &total) == 0 ? free : 0;
}

bool is_device_pointer(const void* at) {
  constexpr int kMemoryType = 2, kDevice = 2;  // CU_POINTER_ATTRIBUTE_..., CU_MEMORYTYPE_...
  unsigned type = 0;
  const auto address = reinterpret_cast<std::uint64_t>(at);
  return device_usable() && driver().pointer_attribute(&type, kMemoryType, address) == 0 &&
         type == kDevice;
}

Stream::Stream() {
  constexpr unsigned kNonBlocking = 1;
  if (driver().usable) driver().stream_create(&stream_, kNonBlocking);
}

Stream::~Stream() {
  if (stream_ != nullptr) driver().stream_destroy(stream_);
}

std::string Stream::synchronize() const { return error_text(driver().stream_synchronize(stream_)); }

const Stream& thread_stream() {
  static thread_local const Stream stream;
  return stream;
}

DeviceMemory::DeviceMemory(std::size_t bytes) {
  if (driver().allocate(&address_, bytes != 0 ? bytes : 1) != 0) address_ = 0;
}

DeviceMemory::~DeviceMemory() {
  if (address_ != 0) driver().release(address_);
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(address_, other.address_);
  return *this;
}

// From pageable memory, which the driver has copied away when the call returns.
bool DeviceMemory::upload(std::size_t offset, const void* from, std::size_t bytes) const {
  return driver().upload(address_ + offset, from, bytes, thread_stream().get()) == 0;
}

bool DeviceMemory::download(void* to, std::size_t offset, std::size_t bytes) const {
  void* stream = thread_stream().get();
  return driver().download(to, address_ + offset, bytes, stream) == 0 &&
         driver().stream_synchronize(stream) == 0;
}

bool DeviceMemory::fill(std::uint8_t byte, std::size_t bytes) const {
  return driver().fill(address_, byte, bytes, thread_stream().get()) == 0;
}

Graph::Graph(const std::function<void()>& work) {
  constexpr int kThreadLocal = 1;
  const Driver& d = driver();
  void* stream = thread_stream().get();
  void* recorded = nullptr;
  int error = d.begin_capture(stream, kThreadLocal);
  if (error == 0) {
    work();
    error = d.end_capture(stream, &recorded);
  }
  if (error == 0) error = d.instantiate(&graph_, recorded, 0);
  if (recorded != nullptr) d.destroy_graph(recorded);
  error_ = error_text(error);
}

Graph::~Graph() {
  if (graph_ != nullptr) driver().destroy_executable(graph_);
}

bool Graph::replay() const { return driver().launch_graph(graph_, thread_stream().get()) == 0; }

}  // namespace tilewise::tools
