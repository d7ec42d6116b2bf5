// Stands in for torch's registration of operators, which torch/types.h brings along and which costs every unit half a second. What uses it is
// compiled with the real header.
#pragma once
