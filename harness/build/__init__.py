"""TODO harness/build"""
