using System.Diagnostics.CodeAnalysis;

namespace Quantra.Client.Wire;

/// <summary>
/// How many calls of a program are made at once: the others wait for their turn, within their own time. A predictor refuses what
/// does not fit into its queue, and a program that asks for all of a universe at once should not have to know how much that is.
/// </summary>
[SuppressMessage("Design", "CA1001:Types that own disposable fields should be disposable", Justification = "without a wait handle it holds nothing")]
internal sealed class CallTurns
{
    /// <summary>As many as fill a forward pass of a server that was told nothing else.</summary>
    private const int Calls = 256;

    /// <summary>One thread works on them in any case, and a server lets 8 of all its callers wait.</summary>
    private const int Explanations = 4;

    private readonly SemaphoreSlim _calls = new(Calls);
    private readonly SemaphoreSlim _explanations = new(Explanations);

    /// <summary>Waits for a turn.</summary>
    /// <param name="isExplanation">Explanations take theirs among themselves.</param>
    /// <param name="timeout">Of the call, for messages.</param>
    /// <param name="left">Of it.</param>
    /// <param name="cancellationToken">Ends the wait.</param>
    /// <returns>The turn, to be disposed when the call has ended.</returns>
    /// <exception cref="QuantraException">DEADLINE_EXCEEDED.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async ValueTask<Turn> TakeAsync(bool isExplanation, TimeSpan timeout, TimeSpan left, CancellationToken cancellationToken)
    {
        var turns = isExplanation ? _explanations : _calls;
        if (await turns.WaitAsync(left > TimeSpan.Zero ? left : TimeSpan.Zero, cancellationToken).ConfigureAwait(false))
            return new Turn(turns);
        var message = FormattableString.Invariant(
            $"other calls of this program took all of its {timeout.TotalSeconds:g} s; allow more time, or ask for less at once");
        throw new QuantraError(QuantraStatus.DeadlineExceeded, QuantraReason.DeadlineExceeded, message).ToException();
    }

    /// <summary>A call's turn; default = it needs none.</summary>
    internal readonly struct Turn(SemaphoreSlim? turns) : IDisposable
    {
        /// <inheritdoc/>
        public void Dispose() => turns?.Release();
    }
}
