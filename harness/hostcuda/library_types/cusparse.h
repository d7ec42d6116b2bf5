#pragma once
typedef struct cusparseContext* cusparseHandle_t;
enum cusparseStatus_t { CUSPARSE_STATUS_SUCCESS };
inline const char* cusparseGetErrorString(cusparseStatus_t) { return nullptr; }
