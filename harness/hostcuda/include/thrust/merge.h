#pragma once
#include "sort.h"
