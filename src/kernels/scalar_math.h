#pragma once

namespace nibble {

// Scalar double/float functions for code outside the vector kernels whose results feed logits or
// samples: the same bits on every machine, unlike libm's. Relative error below 2^-50 (double).
double Exp(double x);
double Log(double x);
double Sin(double x);  // |x| < 2^30
double Cos(double x);
double Pow(double x, double y);  // x > 0
double Tanh(double x);

}  // namespace nibble
