namespace Quantra.Client.Wire;

/// <summary>A call of PredictStream: requests go out one after the other, while responses come in. To dispose it ends it.</summary>
internal interface IConversation : IAsyncDisposable
{
    /// <summary>Sends a request, as soon as whoever reads it has room.</summary>
    /// <returns>Whether it was sent; if not, the call has ended, and <see cref="NextAsync"/> tells why.</returns>
    Task<bool> SendAsync(V1.PredictStreamRequest request);

    /// <summary>Says that no request follows.</summary>
    Task EndAsync();

    /// <summary>Waits for the next response.</summary>
    /// <returns>The response; null once the call has ended in order.</returns>
    /// <exception cref="QuantraException">The call failed.</exception>
    /// <exception cref="OperationCanceledException">The call's token was cancelled.</exception>
    Task<V1.PredictStreamResponse?> NextAsync();
}
