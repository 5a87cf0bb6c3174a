// The library's own thread pool. Not OpenMP: its runtime is not visible to ThreadSanitizer, would
// be a second pool beside the one of the engine that loads us, and has no shape for the caller's
// hook. Every caller works on its own job, so a call always makes progress, whoever else uses the
// pool; workers help where tasks are left. The pool is a constant- initialised object without a
// destructor: nothing to construct in a race, nothing to wait for at exit, and a forked child,
// which has none of the threads, just starts over. (A fork from inside a task is not supported.)
#include "cpu/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <new>

namespace tilewise::cpu {
namespace {

// More workers than this cannot be used by any call we know of, and each may cost scratch and a
// thread.
constexpr std::int32_t kMaxWorkers = 1024;

// Rounds of waiting with open eyes before sleeping, about 10 us: as long as a futex wake-up takes,
// so calls that follow each other closely find workers awake, and a thread that shares our core
// loses little.
constexpr int kSpins = 400;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  sched_yield();
#endif
}

template <class Done>
void spin_until(Done&& done) {
  for (int i = 0; i < kSpins && !done(); ++i) relax();
}

// One parallel_for in progress; lives on its caller's stack.
struct Job {
  Task task;
  void* context;
  std::int64_t tasks;
  std::atomic<std::int64_t> next{0};
  std::atomic<std::int64_t> helpers{0};  // workers inside; written under the pool's mutex
  bool listed = false;
  Job* behind = nullptr;

  // Runs task `i` and every one that is left after it.
  void drain(std::int64_t i) {
    for (; i < tasks; i = next.fetch_add(1, std::memory_order_relaxed)) task(context, i);
  }
};

struct Pool {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t work = PTHREAD_COND_INITIALIZER;
  pthread_cond_t helped = PTHREAD_COND_INITIALIZER;
  Job* front = nullptr;                 // jobs that may have tasks left, oldest first
  std::atomic<std::int64_t> jobs{0};    // how many; a hint for those who spin
  std::int64_t threads = 0, awake = 0;  // awake: looking for work without holding the mutex

  void run(std::int64_t tasks, Task task, void* context);
  void serve();

 private:
  void list(Job& job);
  void unlist(Job& job);
  Job* take(std::int64_t* first);
  void grow(std::int64_t wanted);
};

Pool pool;
// Threads that calls have asked for so far; the pool has at most one less.
std::atomic<std::int32_t> pool_limit{1};

class Lock {
 public:
  explicit Lock(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

void start_over_in_child() { new (&pool) Pool; }

void* worker_main(void*) {
  pool.serve();
  return nullptr;
}

void Pool::list(Job& job) {
  Job** end = &front;
  while (*end != nullptr) end = &(*end)->behind;
  *end = &job;
  job.listed = true;
  jobs.fetch_add(1, std::memory_order_relaxed);
}

void Pool::unlist(Job& job) {
  if (!job.listed) return;
  Job** at = &front;
  while (*at != &job) at = &(*at)->behind;
  *at = job.behind;
  job.listed = false;
  jobs.fetch_sub(1, std::memory_order_relaxed);
}

// The oldest job with a task left, and that task; the caller is then one of its helpers. Null if
// there is none.
Job* Pool::take(std::int64_t* first) {
  while (front != nullptr) {
    Job& job = *front;
    *first = job.next.fetch_add(1, std::memory_order_relaxed);
    if (*first < job.tasks) {
      job.helpers.fetch_add(1, std::memory_order_relaxed);
      return &job;
    }
    unlist(job);
  }
  return nullptr;
}

// Starts workers up to `wanted`. Where the system refuses one, the call goes on with those that
// there are.
void Pool::grow(std::int64_t wanted) {
  if (threads >= wanted) return;
  if (threads == 0) {
    static bool handler_set = false;  // guarded by the mutex; stays set in a child
    if (!handler_set) handler_set = pthread_atfork(nullptr, nullptr, start_over_in_child) == 0;
  }
  // The engine's signals belong to the engine's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  for (; threads < wanted; ++threads) {
    pthread_t thread;
    if (pthread_create(&thread, &detached, worker_main, nullptr) != 0) break;
    pthread_setname_np(thread, "tilewise");
  }
  pthread_attr_destroy(&detached);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Pool::run(std::int64_t tasks, Task task, void* context) {
  Job job{task, context, tasks};
  std::int64_t sleepers = 0;
  {
    const Lock lock(mutex);
    const std::int64_t limit = pool_limit.load(std::memory_order_relaxed);
    grow(std::min(tasks, limit) - 1);
    list(job);
    sleepers = std::min(tasks - 1, threads) - awake;
  }
  for (; sleepers > 0; --sleepers) pthread_cond_signal(&work);

  job.drain(job.next.fetch_add(1, std::memory_order_relaxed));
  spin_until([&job] { return job.helpers.load(std::memory_order_relaxed) == 0; });

  // The last look is under the mutex even if nobody seems to be left: a helper holds it while it
  // lets go of the job.
  const Lock lock(mutex);
  unlist(job);
  while (job.helpers.load(std::memory_order_relaxed) != 0) pthread_cond_wait(&helped, &mutex);
}

void Pool::serve() {
  const Lock lock(mutex);
  for (;;) {
    std::int64_t first = 0;
    if (Job* job = take(&first)) {
      pthread_mutex_unlock(&mutex);
      job->drain(first);
      pthread_mutex_lock(&mutex);
      unlist(*job);
      if (job->helpers.fetch_sub(1, std::memory_order_relaxed) == 1)
        pthread_cond_broadcast(&helped);
      ++awake;
      pthread_mutex_unlock(&mutex);
      spin_until([this] { return jobs.load(std::memory_order_relaxed) != 0; });
      pthread_mutex_lock(&mutex);
      --awake;
    } else {
      pthread_cond_wait(&work, &mutex);
    }
  }
}

void pool_parallel_for(void*, std::int64_t tasks, Task task, void* context) {
  if (tasks == 1) {
    task(context, 0);
  } else if (tasks > 1) {
    pool.run(tasks, task, context);
  }
}

// Cores that the calling thread may run on. A fixed set holds 1,024 CPUs; machines with more make
// the call fail, and have enough.
std::int32_t count_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    return std::clamp(CPU_COUNT(&set), 1, kMaxWorkers);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return static_cast<std::int32_t>(std::clamp(online, 1L, static_cast<long>(kMaxWorkers)));
}

// As of the first call. Two first calls at once may both count, which does no harm.
std::int32_t usable_cores() {
  static std::atomic<std::int32_t> cores{0};
  if (cores.load(std::memory_order_relaxed) == 0) {
    cores.store(count_cores(), std::memory_order_relaxed);
  }
  return cores.load(std::memory_order_relaxed);
}

}  // namespace

Parallel make_parallel(ParallelFor hook, void* user, std::int32_t threads) {
  const std::int32_t workers = threads > 0 ? std::min(threads, kMaxWorkers) : usable_cores();
  if (hook != nullptr) return {hook, user, workers};
  std::int32_t limit = pool_limit.load(std::memory_order_relaxed);
  while (limit < workers &&
         !pool_limit.compare_exchange_weak(limit, workers, std::memory_order_relaxed)) {
  }
  return {pool_parallel_for, nullptr, workers};
}

}  // namespace tilewise::cpu
