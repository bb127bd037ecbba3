using System.Diagnostics.CodeAnalysis;

namespace Quantra.Client.Wire;

/// <summary>
/// Limits how many calls of one client run at the same time. The others wait within their own timeout. Without this limit, a program
/// that forecasts a whole universe at once would fill the server's queue and see its calls rejected.
/// </summary>
[SuppressMessage("Design", "CA1001:Types that own disposable fields should be disposable", Justification = "semaphores without a wait handle hold no resources")]
internal sealed class CallLimiter
{
    /// <summary>Enough calls to fill one forward pass with the server's default batch size.</summary>
    private const int MaxCalls = 256;

    /// <summary>The server computes explanations and paths on one thread and queues 8 of all its clients together.</summary>
    private const int MaxExplanations = 4;

    private readonly SemaphoreSlim _callSlots = new(MaxCalls);
    private readonly SemaphoreSlim _explanationSlots = new(MaxExplanations);

    /// <summary>Waits for a free slot. Explanations and paths have slots of their own.</summary>
    /// <returns>The slot; dispose it when the call has ended.</returns>
    /// <exception cref="QuantraException">DEADLINE_EXCEEDED.</exception>
    public async ValueTask<Slot> AcquireAsync(bool isExplanation, TimeSpan timeout, TimeSpan remaining, CancellationToken cancellationToken)
    {
        var slots = isExplanation ? _explanationSlots : _callSlots;
        if (await slots.WaitAsync(remaining > TimeSpan.Zero ? remaining : TimeSpan.Zero, cancellationToken).ConfigureAwait(false))
            return new Slot(slots);
        var message = FormattableString.Invariant(
            $"earlier calls of this client took all of the {timeout.TotalSeconds:g} s; set a longer timeout, or make fewer calls at once");
        throw new QuantraError(QuantraStatus.DeadlineExceeded, QuantraReason.DeadlineExceeded, message).ToException();
    }

    /// <summary>A slot of the limiter; the default value holds none.</summary>
    internal readonly struct Slot(SemaphoreSlim? slots) : IDisposable
    {
        /// <inheritdoc/>
        public void Dispose() => slots?.Release();
    }
}
