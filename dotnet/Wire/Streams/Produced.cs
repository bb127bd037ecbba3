using System.Runtime.CompilerServices;
using System.Threading.Channels;

namespace Quantra.Client.Wire;

/// <summary>Items that are produced while they are read.</summary>
internal static class Produced
{
    /// <summary>Lets a producer work, and gives its items as they come; then it ends, in order or with the producer's exception.</summary>
    /// <param name="produce">Writes items; its token is cancelled once nobody reads any more, and then it ends soon.</param>
    /// <param name="cancellationToken">Of whoever reads.</param>
    public static async IAsyncEnumerable<T> EachAsync<T>(
        Func<ChannelWriter<T>, CancellationToken, Task> produce,
        [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        var items = Channel.CreateUnbounded<T>(new UnboundedChannelOptions { SingleReader = true });
        using var reader = new Reader(cancellationToken);
        var producing = ProduceAsync(produce, items.Writer, reader.Token);
        try
        {
            while (await items.Reader.WaitToReadAsync(cancellationToken).ConfigureAwait(false))
            {
                while (items.Reader.TryRead(out var item))
                {
                    cancellationToken.ThrowIfCancellationRequested();
                    yield return item;
                }
            }

            cancellationToken.ThrowIfCancellationRequested();
        }
        finally
        {
            await reader.StopAsync().ConfigureAwait(false);
            await producing.ConfigureAwait(false);
        }
    }

    [System.Diagnostics.CodeAnalysis.SuppressMessage("Design", "CA1031:Do not catch general exception types", Justification = "passed on to the reader")]
    private static async Task ProduceAsync<T>(
        Func<ChannelWriter<T>, CancellationToken, Task> produce,
        ChannelWriter<T> items,
        CancellationToken stopped)
    {
        try
        {
            await produce(items, stopped).ConfigureAwait(false);
            items.TryComplete();
        }
        catch (OperationCanceledException) when (stopped.IsCancellationRequested)
        {
            items.TryComplete();
        }
        catch (Exception failure)
        {
            items.TryComplete(failure);
        }
    }

    /// <summary>Somebody who reads. The producer does not hold it, so that it ends too where a reader is left without being disposed.</summary>
    private sealed class Reader(CancellationToken cancellationToken) : IDisposable
    {
        private readonly CancellationTokenSource _stopped = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);

        ~Reader() => _ = _stopped.CancelAsync();

        /// <summary>Cancelled once nobody reads any more.</summary>
        public CancellationToken Token => _stopped.Token;

        public Task StopAsync() => _stopped.CancelAsync();

        public void Dispose()
        {
            GC.SuppressFinalize(this);
            _stopped.Dispose();
        }
    }
}
