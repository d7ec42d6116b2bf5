#pragma once
#include "scan.h"
