namespace Quantra.Client;

/// <summary>
/// Simulates joint price paths of several symbols, for questions about a portfolio or about the way to a price. <c>QuantraClient</c> and
/// <c>EmbeddedPredictor</c> implement it and return the same bits; those of <c>ManagedPredictor</c> differ in the last digits of a float.
/// </summary>
/// <remarks>
/// Thread-safe. Every call may throw <see cref="QuantraException"/>, and <see cref="OperationCanceledException"/> if its token was
/// cancelled.
/// </remarks>
public interface IPathSimulator
{
    /// <summary>Draws paths whose distribution at each horizon is the model's forecast.</summary>
    /// <param name="request">The bars with their past, and the questions.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>The answers and, if requested, the paths.</returns>
    /// <exception cref="QuantraException">The request was rejected; see its Reason.</exception>
    Task<PathSimulation> SimulatePathsAsync(PathSimulationRequest request, CancellationToken cancellationToken = default);
}
