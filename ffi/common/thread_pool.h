// The threads of one pipeline. All its local shards share one pool. The thread that calls Run works too, so
// `num_threads` threads work on a call, and nested calls can't deadlock.
#ifndef JAXDALI_FFI_COMMON_THREAD_POOL_H_
#define JAXDALI_FFI_COMMON_THREAD_POOL_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

namespace jaxdali {

// What a thread did, for benchmarks. Times are those of the monotonic clock and of the thread's CPU clock, in ns.
struct Recorded {
  int64_t run;     // number of the call of ThreadPool::Run
  int64_t index;   // of the task; -1: the whole call, in the thread that made it
  int64_t thread;  // its number in the system
  int64_t begin, end, cpu_begin, cpu_end;
};

class ThreadPool {
 public:
  // Starts num_threads - 1 workers. Throws std::runtime_error, and leaves none, if the system gives too few.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();  // joins
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls task(i) for every i in [0, n), handing out indices one by one in the order given by `order` (largest first is
  // best; empty: 0, 1, ...). Returns when all are done. An exception does not keep other tasks from running; the first
  // one is thrown in the end. With `waits`, as for the kernels of a batch, the other threads do the tasks of calls
  // without it first: what the host needs to launch the next batch.
  void Run(int n, const std::function<void(int)>& task, const std::vector<int>& order = {}, bool waits = false);

  // How many threads are idle. If some are, a large task may gain from a Run of its own.
  int idle() const;

  // A process-wide register, so that compiled programs get a pool as an operand. Get returns null for an unknown id.
  static int Create(int num_threads);
  static void Destroy(int id);
  // Gives the pool of id 0 this number of threads from its next use on, which makes it. Programs that belong to no
  // pipeline use it: they may be stored and run in a process that has called nothing else. Running calls keep theirs.
  static void Share(int num_threads);
  static std::shared_ptr<ThreadPool> Get(int id);

  // Begins or ends recording what the threads of all pools do. A task that runs while recording begins is left out.
  static void Record(bool on);
  // Returns what was recorded since the last call, in the order in which it ended.
  static std::vector<Recorded> TakeRecorded();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Indices 0..n-1 by descending cost, for Run.
inline std::vector<int> LargestFirst(const std::vector<int64_t>& cost) {
  std::vector<int> order(cost.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return cost[a] > cost[b]; });
  return order;
}

// Calls task(context, i) for each of n indices, in this order, on the pool of an id. False: there is no such pool. The
// signature has no C++ types, because kernel libraries outside this module call it too.
using PoolRun = bool(int id, int n, void (*task)(void* context, int i), void* context, const int* order);
#ifdef JAXDALI_EXTENSION
inline PoolRun* RunOnPool = [](int, int, void (*)(void*, int), void*, const int*) { return false; };  // see extension.h
#else
PoolRun RunOnPool;
#endif

// The version of everything such libraries and the module agree on: this function, the operands that every custom call
// begins with (binding.h), the status codes, and the time that a call writes. Increase it when one of them changes.
inline constexpr int kExtensionVersion = 4;

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_THREAD_POOL_H_
