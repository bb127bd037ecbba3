using Spectre.Console;

namespace Quantra.Terminal.Live;

/// <summary>Shows a feed while it runs: redrawn in a terminal, a line a day elsewhere.</summary>
/// <param name="console">Where.</param>
/// <param name="server">Tells where the server stands; "" = it is somebody else's.</param>
internal sealed class LiveSession(IAnsiConsole console, Func<string> server)
{
    private static readonly TimeSpan Redraw = TimeSpan.FromSeconds(0.1);

    private volatile LiveState? _state;

    /// <summary>Follows the feed to its last day, or to a q.</summary>
    /// <exception cref="Client.QuantraException">A forecast failed.</exception>
    public Task ShowAsync(IAsyncEnumerable<LiveState> feed, CancellationToken cancellationToken) =>
        Console.IsOutputRedirected ? PrintAsync(feed, cancellationToken) : DrawAsync(feed, cancellationToken);

    private async Task PrintAsync(IAsyncEnumerable<LiveState> feed, CancellationToken cancellationToken)
    {
        var (told, summary) = ("", "");
        await foreach (var state in feed.WithCancellation(cancellationToken))
        {
            if (server() is var now && now != told)
                await Console.Out.WriteLineAsync(told = now);
            if (state.Days.Count > 0)
                await Console.Out.WriteLineAsync($"{state.Days[^1]}");
            summary = state.Summary();
        }

        await Console.Out.WriteLineAsync(summary);
    }

    private async Task DrawAsync(IAsyncEnumerable<LiveState> feed, CancellationToken cancellationToken)
    {
        using var ending = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        await console.Live(Drawing()).StartAsync(async live =>
        {
            var following = FollowAsync(feed, ending.Token);
            while (!following.IsCompleted)
            {
                await Task.WhenAny(following, Task.Delay(Redraw, CancellationToken.None));
                live.UpdateTarget(Drawing());
                if (QIsPressed())
                    await ending.CancelAsync();
            }

            await following;
        });
    }

    private async Task FollowAsync(IAsyncEnumerable<LiveState> feed, CancellationToken ending)
    {
        try
        {
            await foreach (var state in feed.WithCancellation(ending))
                _state = state;
        }
        catch (OperationCanceledException) when (ending.IsCancellationRequested)
        {
            // The user has seen enough.
        }
    }

    private Spectre.Console.Rendering.IRenderable Drawing() => new LiveView(_state, server()).Render(console.Profile.Width, console.Profile.Height);

    private static bool QIsPressed() => !Console.IsInputRedirected && Console.KeyAvailable && Console.ReadKey(intercept: true).KeyChar is 'q' or 'Q';
}
