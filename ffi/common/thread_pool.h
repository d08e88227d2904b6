// The threads of one pipeline. All its local shards share one pool; the thread that calls Run works too, so that
// `num_threads` threads work on a call and nested use can't deadlock.
#ifndef JAXDALI_FFI_COMMON_THREAD_POOL_H_
#define JAXDALI_FFI_COMMON_THREAD_POOL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace jaxdali {

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);  // num_threads - 1 workers
  ~ThreadPool();                         // joins
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls task(i) for every i in [0, n), in the order given by `order` (largest first is best; empty: 0, 1, ...),
  // handed out one by one. Returns when all are done. Tasks must not throw.
  void Run(int n, const std::function<void(int)>& task, const std::vector<int>& order = {});

  // A process-wide register, so that compiled programs get a pool as an operand. Get returns null for an unknown id.
  static int Create(int num_threads);
  static void Destroy(int id);
  static std::shared_ptr<ThreadPool> Get(int id);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Indices 0..n-1 by descending cost, for Run.
std::vector<int> LargestFirst(const std::vector<int64_t>& cost);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_THREAD_POOL_H_
