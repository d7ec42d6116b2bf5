// The OS threads that carry grids. One grid at a time: the caller of team_run holds a lock.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>

#include "scheduler.h"
#include "state.h"

namespace hostcuda {

namespace {

// Workers beside the calling thread. Made at the first launch that needs them, anew in a forked child.
class Team {
public:
    static Team& get() {
        static Team* team = nullptr;
        if (team == nullptr || team->pid_ != getpid()) team = new Team();  // an inherited one has no threads here
        return *team;
    }
    unsigned size() const { return static_cast<unsigned>(threads_.size()) + 1; }
    void run(Launch& grid) {
        if (grid.workers > 1) {
            std::lock_guard<std::mutex> lock(mutex_);
            grid_ = &grid;
            wanted_ = grid.workers - 1;
            running_ = wanted_;
            ++turn_;
        }
        if (grid.workers > 1) wake_.notify_all();
        work(*own_, grid);
        if (grid.workers > 1) {
            std::unique_lock<std::mutex> lock(mutex_);
            done_.wait(lock, [&] { return running_ == 0; });
        }
    }

private:
    Team() : pid_(getpid()), own_(make_worker(0)) {
        cpu_set_t allowed;
        unsigned cores = 1;
        if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) cores = static_cast<unsigned>(CPU_COUNT(&allowed));
        if (const char* asked = std::getenv("HOSTCUDA_WORKERS")) cores = static_cast<unsigned>(std::max(1, std::atoi(asked)));
        for (unsigned i = 1; i < cores; ++i) {
            try {
                threads_.emplace_back([this, i] { serve(i); });
                threads_.back().detach();
            } catch (const std::system_error&) {
                break;  // the sandbox allows no more threads: fewer do
            }
        }
    }
    void serve(unsigned number) {
        auto worker = make_worker(number);
        std::uint64_t seen = 0;
        for (;;) {
            Launch* grid = nullptr;
            {
                std::unique_lock<std::mutex> lock(mutex_);
                wake_.wait(lock, [&] { return turn_ != seen; });
                seen = turn_;
                if (number > wanted_) continue;
                grid = grid_;
            }
            work(*worker, *grid);
            std::lock_guard<std::mutex> lock(mutex_);
            if (--running_ == 0) done_.notify_one();
        }
    }
    pid_t pid_;
    std::unique_ptr<Worker> own_;
    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    Launch* grid_ = nullptr;
    unsigned wanted_ = 0, running_ = 0;
    std::uint64_t turn_ = 0;
};

}  // namespace

unsigned team_size() { return Team::get().size(); }
void team_run(Launch& grid) { Team::get().run(grid); }

}  // namespace hostcuda
