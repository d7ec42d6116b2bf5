// What outlives this process, for whoever holds the other end of the memory given to hostcuda_record_to: findings as they are made, the kernel
// that runs, where a signal came. All of it is bounded, and written without waiting for anybody.
#pragma once
#include <string>

#include "state.h"

namespace hostcuda {

void record_finding(const std::string& json);     // one object, no line break
void record_launch(const Launch& grid);           // it begins, or its kernel's name is known now
void record_launch_end();
void record_module(const char* path, std::uintptr_t base);  // one of a solution's: places of signals are looked for in these
bool finish_division(void* interrupted);          // division.cpp: whether it was one; the `ucontext_t` goes on behind it with the result of a GPU
void catch_signals_here();                        // on the calling OS thread, also where a fiber's stack is used up
extern std::atomic<bool> place_is_asked_for;      // the time was over while a thread at a grid was at none of its GPU threads
void tell_place();                                // to be called by a GPU thread then
void record_carrier(bool busy);                   // whether the calling OS thread is at a grid from now on

}  // namespace hostcuda
