namespace Quantra.Client.Managed;

/// <summary>A network with its weights. Safe to use from several threads.</summary>
internal interface INetwork
{
    /// <summary>Computes quantiles in units of each window's scale.</summary>
    /// <param name="inputs">N windows.</param>
    /// <param name="units">[N, H, Q]; float32 numbers, except from kinds that compute in float64.</param>
    void Run(NetworkInputs inputs, Span<double> units);
}
