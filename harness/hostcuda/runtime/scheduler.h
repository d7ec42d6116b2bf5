// What the files that run a grid ask of each other: scheduler.cpp (threads, blocks, workers' loop), barriers.cpp, team.cpp (OS threads).
#pragma once
#include <memory>

#include "state.h"

namespace hostcuda {

// scheduler.cpp
void enter_block(Worker& worker, Block& block);      // the worker's view of memory and built-ins becomes this block's
void work(Worker& worker, Launch& grid);             // runs blocks until the grid has none left
std::unique_ptr<Worker> make_worker(unsigned number);
std::uint32_t newest_serial();                       // the next that will be handed out
bool runnable(const Block& block);                   // some thread of it can go on
inline std::uint32_t thread_at(const Block& block, std::uint32_t turn) { return block.launch->reversed ? block.count - 1 - turn : turn; }

// ordering.cpp
void forget_sync_points();                           // a launch begins: what the one before did there orders nothing in it

// barriers.cpp
void release_barrier(Worker& worker, Block& block, Thread* except);  // all are there: everybody goes on, `except` without a switch
void release_grid(Block& block);
void arrive_at_grid(Block& block);
void refuse_lost_grid(Worker& worker, const Block& block);  // it waits for one that has ended
void report_deadlock(Worker& worker, Block& block);

// named_barriers.cpp
void named_barriers_after_exit(Block& block);
void forget_named_barriers(Block& block);

// team.cpp
unsigned team_size();                                // OS threads that may carry a grid, the calling one included
void team_run(Launch& grid);

}  // namespace hostcuda
