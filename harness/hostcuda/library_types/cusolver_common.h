#pragma once
enum cusolverStatus_t { CUSOLVER_STATUS_SUCCESS };
