using System.Runtime.CompilerServices;
using System.Threading.Channels;

namespace Quantra.Client.Wire;

/// <summary>Connects a producer and a consumer of items.</summary>
internal static class AsyncProducer
{
    /// <summary>Runs a producer and yields its items. Ends with the producer, and throws its exception.</summary>
    /// <param name="produce">Writes the items. Its token is cancelled when the consumer stops reading.</param>
    /// <param name="cancellationToken">The consumer's token.</param>
    public static async IAsyncEnumerable<T> EnumerateAsync<T>(
        Func<ChannelWriter<T>, CancellationToken, Task> produce,
        [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        var items = Channel.CreateUnbounded<T>(new UnboundedChannelOptions { SingleReader = true });
        using var consumer = new Consumer(cancellationToken);
        var producing = ProduceAsync(produce, items.Writer, consumer.Stopped);
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
            await consumer.StopAsync().ConfigureAwait(false);
            await producing.ConfigureAwait(false);
        }
    }

    [System.Diagnostics.CodeAnalysis.SuppressMessage("Design", "CA1031:Do not catch general exception types", Justification = "passed on to the consumer")]
    private static async Task ProduceAsync<T>(
        Func<ChannelWriter<T>, CancellationToken, Task> produce,
        ChannelWriter<T> items,
        CancellationToken stoppedToken)
    {
        try
        {
            await produce(items, stoppedToken).ConfigureAwait(false);
            items.TryComplete();
        }
        catch (OperationCanceledException) when (stoppedToken.IsCancellationRequested)
        {
            items.TryComplete();
        }
        catch (Exception failure)
        {
            items.TryComplete(failure);
        }
    }

    /// <summary>Stops the producer when the consumer is done, or is collected without being disposed. The producer does not reference it.</summary>
    private sealed class Consumer(CancellationToken cancellationToken) : IDisposable
    {
        private readonly CancellationTokenSource _stopped = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);

        ~Consumer() => _ = _stopped.CancelAsync();

        public CancellationToken Stopped => _stopped.Token;

        public Task StopAsync() => _stopped.CancelAsync();

        public void Dispose()
        {
            GC.SuppressFinalize(this);
            _stopped.Dispose();
        }
    }
}
