//! *_, cols = y.shape
//! rows = prod(y.shape[:-1])
//! grad_x = empty(y.shape)
// grad_x = k y (grad_y - <grad_y, y>), a row a block

//! grid  = rows
//! block = 256
template <typename T>
__global__ void backward(const T* __restrict__ grad_y, const T* __restrict__ y, T* __restrict__ grad_x, float k, int cols) {
  __shared__ float warps[8];
  const long long row = (long long)blockIdx.x * cols;
  float dot = 0;
  for (int c = threadIdx.x; c < cols; c += 256) dot += float(grad_y[row + c]) * float(y[row + c]);
  for (int o = 16; o; o >>= 1) dot += __shfl_xor_sync(~0u, dot, o);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = dot;
  __syncthreads();
  dot = 0;
  for (int w = 0; w < 8; ++w) dot += warps[w];
  for (int c = threadIdx.x; c < cols; c += 256)
    grad_x[row + c] = T(k * float(y[row + c]) * (float(grad_y[row + c]) - dot));
}
