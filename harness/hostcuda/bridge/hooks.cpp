// What torch's core asks of a CUDA device besides operators: autograd asks whether there is one, and which is current.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>

#include <new>

#include "device.h"

namespace hostcuda::bridge {

namespace {

struct Hooks final : at::CUDAHooksInterface {
    void init() const override {}
    bool hasCUDA() const override { return true; }
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    c10::DeviceIndex deviceCount() const override { return 1; }
    c10::DeviceIndex current_device() const override { return 0; }
    c10::DeviceIndex getCurrentDevice() const override { return 0; }
    void setCurrentDevice(c10::DeviceIndex) const override {}
    c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
    c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
    int getNumGPUs() const override { return 1; }
    const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
    at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
    c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
    c10::Device getDeviceFromPtr(void*) const override { return c10::Device(c10::DeviceType::CUDA, 0); }
    void deviceSynchronize(c10::DeviceIndex) const override {}
};

}  // namespace

// Torch asked for its hooks when it was imported, and keeps the object: which has no members, so that one of ours takes its place.
void add_hooks() {
    static_assert(sizeof(Hooks) == sizeof(at::CUDAHooksInterface) && sizeof(Hooks) == sizeof(void*));
    new (const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks())) Hooks();
}

}  // namespace hostcuda::bridge
