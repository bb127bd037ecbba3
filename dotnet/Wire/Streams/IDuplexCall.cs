namespace Quantra.Client.Wire;

/// <summary>A PredictStream call: sends requests and receives responses. Disposing it ends the call.</summary>
internal interface IDuplexCall : IAsyncDisposable
{
    /// <summary>Sends a request as soon as flow control allows.</summary>
    /// <returns>Whether it was sent. If not, the call has ended and <see cref="ReadAsync"/> throws the reason.</returns>
    Task<bool> SendAsync(V1.PredictStreamRequest request);

    /// <summary>Ends the stream of requests.</summary>
    Task CompleteAsync();

    /// <summary>Waits for the next response.</summary>
    /// <returns>The response; null at the end of the call.</returns>
    /// <exception cref="QuantraException">The call failed.</exception>
    /// <exception cref="OperationCanceledException">The call's token was cancelled.</exception>
    Task<V1.PredictStreamResponse?> ReadAsync();
}
