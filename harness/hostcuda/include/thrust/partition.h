#pragma once
#include "unique.h"
