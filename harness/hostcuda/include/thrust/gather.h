#pragma once
#include "copy.h"
