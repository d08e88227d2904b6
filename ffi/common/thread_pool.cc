// The thread pool, from the bottom up: recording for benchmarks, a job (one call of Run), the workers, and the register
// of pools by id.
#include "ffi/common/thread_pool.h"

#include <time.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "ffi/common/system.h"

namespace jaxdali {

namespace {

std::atomic<bool> g_recording{false};
std::atomic<int64_t> g_runs{0};
std::mutex g_recorded_mutex;
std::vector<Recorded> g_recorded;

int64_t Now(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * int64_t{1000000000} + t.tv_nsec;
}

// Records what its thread does while it lives, if recording is on.
class Recording {
 public:
  // `run`, `index`: as in Recorded; run 0: nothing is recorded.
  Recording(int64_t run, int index) : is_on_(run > 0) {
    if (!is_on_) return;
    record_.run = run;
    record_.index = index;
    record_.begin = Now(CLOCK_MONOTONIC);
    record_.cpu_begin = Now(CLOCK_THREAD_CPUTIME_ID);
  }
  // Adds the record to the list of all threads.
  ~Recording() {
    if (!is_on_) return;
    record_.cpu_end = Now(CLOCK_THREAD_CPUTIME_ID);
    record_.end = Now(CLOCK_MONOTONIC);
    record_.thread = ThreadNumber();
    std::lock_guard<std::mutex> lock(g_recorded_mutex);
    g_recorded.push_back(record_);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  const bool is_on_;
  Recorded record_{};
};

// While it lives, its thread keeps subnormal numbers. XLA's threads, which call Run, flush them to zero, and a worker
// inherits that from the thread that starts it. So results would depend on the thread that makes a sample.
class KeptSubnormals {
 public:
  KeptSubnormals() : control_(Control()) {
    if (control_ & kFlush) SetControl(control_ & ~kFlush);
  }
  ~KeptSubnormals() {
    if (control_ & kFlush) SetControl(control_);
  }
  KeptSubnormals(const KeptSubnormals&) = delete;
  KeptSubnormals& operator=(const KeptSubnormals&) = delete;

 private:
#if defined(__x86_64__)
  using Word = unsigned;
  static constexpr Word kFlush = 0x8040;  // of MXCSR: FTZ for results, DAZ for operands
  static Word Control() { return _mm_getcsr(); }
  static void SetControl(Word control) { _mm_setcsr(control); }
#elif defined(__aarch64__)
  using Word = uint64_t;
  static constexpr Word kFlush = 1 << 24 | 1 << 19;  // of FPCR: FZ, and FZ16 for 16-bit floats
  static Word Control() {
    Word control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void SetControl(Word control) { __asm__ volatile("msr fpcr, %0" : : "r"(control)); }
#else
  using Word = int;
  static constexpr Word kFlush = 0;
  static Word Control() { return 0; }
  static void SetControl(Word) {}
#endif

  const Word control_;
};

// The number of a call of Run. 0: it is not recorded.
int64_t NumberOfRun() { return g_recording.load(std::memory_order_relaxed) ? ++g_runs : 0; }

// One call of Run: a counter from which the workers and the caller draw indices.
struct Job {
  int n;        // tasks
  int64_t run;  // see NumberOfRun
  const std::function<void(int)>* task;
  const std::vector<int>* order;  // the index of each place; empty: places are indices
  std::atomic<int>* urgent;       // number of the pool's urgent jobs that have indices left
  bool waits;                     // workers leave this job for an urgent one; false: it is urgent
  std::atomic<int> next{0};       // the place that is drawn next; from n on, none is left
  std::atomic<int> done{0};       // tasks that have ended
  std::mutex mutex;               // of `error` and `finished`
  std::exception_ptr error;       // the first one that a task threw
  std::condition_variable finished;

  // Does the task at place k of the order, and keeps its exception for the caller of Run.
  void Do(int k) {
    const int index = order->empty() ? k : (*order)[k];
    const Recording recording(run, index);
    try {
      (*task)(index);
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex);
      if (!error) error = std::current_exception();
    }
  }

  // Draws places and does their tasks until none is left. A worker leaves a job that waits for an urgent one; the
  // thread that called Run does not.
  void Work(bool worker) {
    while (!worker || !waits || urgent->load(std::memory_order_relaxed) == 0) {
      const int k = next++;
      if (k >= n) return;
      if (!waits && k == n - 1) --*urgent;  // no worker need leave another job for this one
      Do(k);
      if (++done == n) {
        std::lock_guard<std::mutex> lock(mutex);
        finished.notify_all();
      }
    }
  }
};

}  // namespace

// The workers and their queue. Urgent jobs stand at its front, those that wait for them at its back.
struct ThreadPool::State {
  std::mutex mutex;  // of `jobs` and `stop`
  std::condition_variable wake;
  std::deque<std::shared_ptr<Job>> jobs;
  bool stop = false;
  std::atomic<int> idle{0}, urgent{0};  // workers that sleep; urgent jobs that have indices left
  std::vector<std::thread> workers;

  // The life of a worker: takes the first job of the queue until there is none left to take, then sleeps.
  void Loop() {
    NameThread("jaxdali-kernels");
    const KeptSubnormals kept_subnormals;
    for (;;) {
      std::shared_ptr<Job> job;
      {
        std::unique_lock<std::mutex> lock(mutex);
        idle++;
        wake.wait(lock, [&] { return stop || !jobs.empty(); });
        idle--;
        if (stop) return;
        job = jobs.front();  // stays in the queue, for the other workers, until its indices are drawn
        if (job->next.load() >= job->n) {
          jobs.pop_front();
          continue;
        }
      }
      job->Work(/*worker=*/true);
    }
  }

  // Stops the workers, and waits for them.
  void Stop() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stop = true;
    }
    wake.notify_all();
    for (std::thread& t : workers) t.join();
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(new State) {
  try {
    for (int i = 1; i < num_threads; i++) state_->workers.emplace_back([this] { state_->Loop(); });
  } catch (const std::exception& e) {  // no thread, or no memory for one
    const std::string started = std::to_string(state_->workers.size());
    state_->Stop();  // the destructor does not run, and a thread that is not joined ends the process
    throw std::runtime_error("can't start new thread: the system gave " + started + " of the " +
                             std::to_string(num_threads - 1) + " that num_threads=" + std::to_string(num_threads) +
                             " needs (" + e.what() + ")");
  }
}

ThreadPool::~ThreadPool() { state_->Stop(); }

// Calls task(i) for every i in [0, n), on all threads including this one, and returns when all are done; then throws
// the first exception of a task. `order`: the indices in the order in which they begin, or empty. `waits`: workers do
// the tasks of calls without it first.
void ThreadPool::Run(int n, const std::function<void(int)>& task, const std::vector<int>& order, bool waits) {
  if (n <= 0) return;
  const int64_t run = NumberOfRun();
  const Recording recording(run, /*index=*/-1);  // the whole call
  const KeptSubnormals kept_subnormals;
  auto job = std::make_shared<Job>();
  job->n = n;
  job->run = run;
  job->task = &task;
  job->order = &order;
  job->urgent = &state_->urgent;
  job->waits = waits;
  if (n == 1 || state_->workers.empty()) {  // nothing to share
    for (int k = 0; k < n; k++) job->Do(k);
    if (job->error) std::rethrow_exception(job->error);
    return;
  }
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    if (waits) {
      state_->jobs.push_back(job);
    } else {
      state_->jobs.push_front(job);
      state_->urgent++;
    }
  }
  state_->wake.notify_all();
  job->Work(/*worker=*/false);
  // The last indices may still be with workers. The caller's task must live until they are done.
  {
    std::unique_lock<std::mutex> lock(job->mutex);
    job->finished.wait(lock, [&] { return job->done.load() == n; });
  }
  {
    // A worker that still holds the job finds no index left: it reads the counter but not the task, which may be gone.
    std::lock_guard<std::mutex> lock(state_->mutex);
    auto it = std::find(state_->jobs.begin(), state_->jobs.end(), job);
    if (it != state_->jobs.end()) state_->jobs.erase(it);
  }
  if (job->error) std::rethrow_exception(job->error);
}

int ThreadPool::idle() const { return state_->idle.load(); }

void ThreadPool::Record(bool on) { g_recording = on; }

std::vector<Recorded> ThreadPool::TakeRecorded() {
  std::lock_guard<std::mutex> lock(g_recorded_mutex);
  return std::exchange(g_recorded, {});
}

// The register of pools. Id 0 is the shared pool.
namespace {
std::mutex g_mutex;
int g_next = 1;
int g_shared_threads = 0;  // number of threads of the shared pool; 0: there is none
std::map<int, std::shared_ptr<ThreadPool>>& Pools() {
  // Never destroyed: worker threads may outlive static destructors.
  static auto* pools = new std::map<int, std::shared_ptr<ThreadPool>>;
  return *pools;
}
}  // namespace

int ThreadPool::Create(int num_threads) {
  auto pool = std::make_shared<ThreadPool>(num_threads);
  std::lock_guard<std::mutex> lock(g_mutex);
  Pools()[g_next] = std::move(pool);
  return g_next++;
}

void ThreadPool::Share(int num_threads) {
  std::shared_ptr<ThreadPool> old;  // before the lock, so that its threads are joined after the lock's end
  std::lock_guard<std::mutex> lock(g_mutex);
  g_shared_threads = num_threads;
  std::swap(Pools()[0], old);
}

// Removes a pool from the register. Its threads end with the last call that uses it.
void ThreadPool::Destroy(int id) {
  std::shared_ptr<ThreadPool> pool;  // before the lock, so that its threads are joined after the lock's end
  std::lock_guard<std::mutex> lock(g_mutex);
  auto it = Pools().find(id);
  if (it == Pools().end()) return;
  pool = std::move(it->second);
  Pools().erase(it);
}

std::shared_ptr<ThreadPool> ThreadPool::Get(int id) {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (id == 0 && g_shared_threads > 0) {
    std::shared_ptr<ThreadPool>& shared = Pools()[0];
    if (!shared) shared = std::make_shared<ThreadPool>(g_shared_threads);
    return shared;
  }
  auto it = Pools().find(id);
  return it == Pools().end() ? nullptr : it->second;
}

bool RunOnPool(int id, int n, void (*task)(void* context, int i), void* context, const int* order) {
  auto pool = ThreadPool::Get(id);
  if (!pool) return false;
  pool->Run(n, [&](int i) { task(context, i); }, std::vector<int>(order, order + n), /*waits=*/true);
  return true;
}

}  // namespace jaxdali
