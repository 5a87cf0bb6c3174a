// The threads of the generate command. Its own matrix products and the library's calls (through
// their parallel_for hook) share them, so that no two pools compete for the cores.
#pragma once

#include <tilewise/tilewise.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace tilewise::generate {

class ThreadPool {
 public:
  // `threads` counts the caller, who works too: threads - 1 are started.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(context, i) for every i in [0, tasks) and returns after all. One caller at a time,
  // and no call from inside a task.
  void run(std::int64_t tasks, tw_task task, void* context);

  // The same for a function object body(i).
  template <class Body>
  void for_each(std::int64_t tasks, Body body) {
    run(
        tasks, [](void* opaque, std::int64_t i) { (*static_cast<Body*>(opaque))(i); }, &body);
  }

  // Has the type of the library's hook; `user` is the pool.
  static void parallel_for(void* user, std::int64_t tasks, tw_task task, void* context);

 private:
  void work();
  void worker_loop();
  std::uint64_t wait_for_job(std::uint64_t seen);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<std::uint64_t> job_{0};  // number of the latest job
  std::atomic<std::int64_t> next_{0};  // next task of the job
  std::atomic<std::int64_t> busy_{0};  // workers that have not finished the job
  std::atomic<bool> stop_{false};
  std::int64_t tasks_ = 0;
  tw_task task_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace tilewise::generate
