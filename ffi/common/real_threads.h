// Host threads in place of a GPU's threads, for the tests under ThreadSanitizer. It reports data races between threads
// of a block without a barrier, and between neighbouring blocks of one launch.
#ifndef JAXDALI_FFI_COMMON_REAL_THREADS_H_
#define JAXDALI_FFI_COMMON_REAL_THREADS_H_

#include <pthread.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

namespace jaxdali {

class Barrier {
 public:
  explicit Barrier(unsigned threads) { pthread_barrier_init(&barrier_, nullptr, threads); }
  Barrier(const Barrier&) = delete;
  void Wait() { pthread_barrier_wait(&barrier_); }

 private:
  pthread_barrier_t barrier_;
};

// The block as one of its threads sees it, like DeviceBlock in launch.h.
struct ThreadOfBlock {
  int index, thread;
  Barrier* barrier;

  template <class F>
  void Phase(F f) const {
    f(thread);
    barrier->Wait();
  }
};

// Groups of `kThreads` threads. Each group runs one block at a time, and lasts as long as the process.
template <int kThreads>
class Crews {
 public:
  static constexpr int kCrews = 2;
  using Work = std::function<void(int crew, int thread, Barrier* barrier)>;

  static Crews& Instance() {
    static Crews* crews = new Crews;
    return *crews;
  }

  // Calls work(crew, thread, the crew's barrier) in all threads.
  void Run(const Work& work) {
    work_ = &work;
    start_.Wait();
    end_.Wait();
  }

 private:
  // Starts the threads, which wait for work as long as the process lives.
  Crews() {
    for (int t = 0; t < kThreads; t++)
      for (int c = 0; c < kCrews; c++)
        std::thread([this, t, c] {
          for (;;) {
            start_.Wait();
            (*work_)(c, t, &barriers_[c]);
            end_.Wait();
          }
        }).detach();
  }

  const Work* work_ = nullptr;
  Barrier start_{kCrews * kThreads + 1}, end_{kCrews * kThreads + 1};
  Barrier barriers_[kCrews] = {Barrier(kThreads), Barrier(kThreads)};
};

// Runs blocks 2k and 2k + 1 at the same time, with garbage in the shared memory of each.
template <int kThreads, class Kernel>
void RunOnThreads(const Kernel& kernel, int64_t blocks) {
  using Shared = typename Kernel::Shared;
  using Crews = Crews<kThreads>;
  std::unique_ptr<Shared> shared[Crews::kCrews];
  for (auto& s : shared) s = std::make_unique<Shared>();
  // Each thread of crew c runs its part of blocks c, c + kCrews, ...
  Crews::Instance().Run([&](int crew, int thread, Barrier* barrier) {
    for (int64_t b = crew; b < blocks; b += Crews::kCrews) {
      if (thread == 0) std::memset(static_cast<void*>(shared[crew].get()), 0xA5, sizeof(Shared));
      barrier->Wait();
      kernel(ThreadOfBlock{static_cast<int>(b), thread, barrier}, *shared[crew]);
      barrier->Wait();
    }
  });
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_COMMON_REAL_THREADS_H_
