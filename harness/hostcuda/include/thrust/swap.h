#pragma once
#include "copy.h"
#include "pair.h"
