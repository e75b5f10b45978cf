// The calling thread's current device.
#pragma once

namespace torch_xla {

int CurrentDevice();
void SetCurrentDevice(int device);

}  // namespace torch_xla
