#include "ffi/common/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

namespace jaxdali {

namespace {

// One call of Run: a counter from which the workers and the caller draw indices.
struct Job {
  int n;
  const std::function<void(int)>* task;
  const std::vector<int>* order;
  std::atomic<int> next{0};
  std::atomic<int> done{0};
  std::mutex mutex;
  std::condition_variable finished;

  void Work() {
    for (int k = next++; k < n; k = next++) {
      (*task)(order->empty() ? k : (*order)[k]);
      if (++done == n) {
        std::lock_guard<std::mutex> lock(mutex);
        finished.notify_all();
      }
    }
  }
};

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::shared_ptr<Job>> jobs;
  bool stop = false;
  std::atomic<int> idle{0};
  std::vector<std::thread> workers;

  void Loop() {
#ifdef __linux__
    pthread_setname_np(pthread_self(), "jaxdali-kernels");  // 15 characters at most
#endif
    for (;;) {
      std::shared_ptr<Job> job;
      {
        std::unique_lock<std::mutex> lock(mutex);
        idle++;
        wake.wait(lock, [&] { return stop || !jobs.empty(); });
        idle--;
        if (stop) return;
        job = jobs.front();
        if (job->next.load() >= job->n) {
          jobs.pop_front();
          continue;
        }
      }
      job->Work();
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(new State) {
  for (int i = 1; i < num_threads; i++) state_->workers.emplace_back([this] { state_->Loop(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stop = true;
  }
  state_->wake.notify_all();
  for (std::thread& t : state_->workers) t.join();
}

void ThreadPool::Run(int n, const std::function<void(int)>& task, const std::vector<int>& order) {
  if (n <= 0) return;
  if (n == 1 || state_->workers.empty()) {
    for (int k = 0; k < n; k++) task(order.empty() ? k : order[k]);
    return;
  }
  auto job = std::make_shared<Job>();
  job->n = n;
  job->task = &task;
  job->order = &order;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->jobs.push_back(job);
  }
  state_->wake.notify_all();
  job->Work();
  {
    std::unique_lock<std::mutex> lock(job->mutex);
    job->finished.wait(lock, [&] { return job->done.load() == n; });
  }
  // A worker that still holds the job finds no index left: it reads the counter but not the task, which may be gone.
  std::lock_guard<std::mutex> lock(state_->mutex);
  auto it = std::find(state_->jobs.begin(), state_->jobs.end(), job);
  if (it != state_->jobs.end()) state_->jobs.erase(it);
}

int ThreadPool::idle() const { return state_->idle.load(); }

namespace {
std::mutex g_mutex;
int g_next = 1;
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
  auto pool = std::make_shared<ThreadPool>(num_threads);  // then the old pool, joined outside the lock
  std::lock_guard<std::mutex> lock(g_mutex);
  std::swap(Pools()[0], pool);
}

void ThreadPool::Destroy(int id) {
  std::shared_ptr<ThreadPool> pool;  // joins its threads outside the lock
  std::lock_guard<std::mutex> lock(g_mutex);
  auto it = Pools().find(id);
  if (it == Pools().end()) return;
  pool = std::move(it->second);
  Pools().erase(it);
}

std::shared_ptr<ThreadPool> ThreadPool::Get(int id) {
  std::lock_guard<std::mutex> lock(g_mutex);
  auto it = Pools().find(id);
  return it == Pools().end() ? nullptr : it->second;
}

bool RunOnPool(int id, int n, void (*task)(void* of, int i), void* of, const int* order) {
  auto pool = ThreadPool::Get(id);
  if (!pool) return false;
  pool->Run(n, [&](int i) { task(of, i); }, std::vector<int>(order, order + n));
  return true;
}

}  // namespace jaxdali
