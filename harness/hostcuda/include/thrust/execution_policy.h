#pragma once
#include "detail/policy.h"
